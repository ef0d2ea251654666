#include "cohort/extras/files/images/resample_weights.h"

#include <algorithm>
#include <cmath>

namespace cohort::files::detail {
namespace {

constexpr double kBicubicA = -0.5;
constexpr int kMaxPrecision = 22;

double filter_at(ResampleFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResampleFilter::kBilinear) return x < 1 ? 1 - x : 0;
  if (x < 1) return ((kBicubicA + 2) * x - (kBicubicA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kBicubicA : 0;
}

}  // namespace

// The precision depends on the largest weight of all results, also of those outside the window.
ResampleWeights resample_weights(size_t from, size_t to, size_t window, size_t window_size, ResampleFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);
  const double inverse = 1.0 / stretch;
  const double support = (filter == ResampleFilter::kBilinear ? 1.0 : 2.0) * stretch;
  const auto max_count = static_cast<int64_t>(std::ceil(static_cast<float>(support))) * 2 + 1;
  ResampleWeights result;
  result.max_taps = static_cast<size_t>(max_count);
  result.taps.reserve(window_size);
  std::vector<double> wanted(window_size * result.max_taps);
  std::vector<double> values(result.max_taps);
  double largest = 0;
  for (size_t i = 0; i < to; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    // Truncates instead of rounding, as Pillow and PyTorch do.
    const auto whole = [](double at) { return static_cast<int64_t>(at); };
    const int64_t first = std::max<int64_t>(whole(center - support + 0.5), 0);
    const int64_t end = std::min(whole(center + support + 0.5), static_cast<int64_t>(from));
    const auto count = static_cast<size_t>(std::clamp<int64_t>(end - first, 0, max_count));
    double total = 0;
    for (size_t j = 0; j < count; ++j) {
      values[j] = filter_at(filter, (static_cast<double>(first + static_cast<int64_t>(j)) - center + 0.5) * inverse);
      total += values[j];
    }
    for (size_t j = 0; j < count && total != 0; ++j) {
      values[j] /= total;
      largest = std::max(largest, values[j]);
    }
    if (i < window || i - window >= window_size) continue;
    result.taps.push_back({static_cast<size_t>(first), count});
    std::copy_n(values.begin(), count, wanted.begin() + static_cast<ptrdiff_t>((i - window) * result.max_taps));
  }
  const auto fits = [&](int precision) { return 0.5 + largest * (1 << precision) < 1 << 15; };
  while (result.precision < kMaxPrecision && fits(result.precision + 1)) ++result.precision;
  result.weights.reserve(wanted.size());
  for (const double value : wanted) {
    result.weights.push_back(static_cast<int16_t>(value * (1 << result.precision) + (value < 0 ? -0.5 : 0.5)));
  }
  return result;
}

}  // namespace cohort::files::detail
