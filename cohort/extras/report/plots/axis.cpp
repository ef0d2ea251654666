#include "cohort/extras/report/plots/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cohort::report {
namespace {

constexpr double kLargest = 1e300;

// Returns the smallest of 1, 2 and 5 times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace

std::string tick_label(double value, double step) {
  const double size = std::max(std::fabs(value), step);
  if (std::fabs(value) < step * 1e-6) return "0";
  if (size >= 1e9 || size < 1e-4)
    return fmt::format("{:.{}g}", value, std::clamp(static_cast<int>(std::ceil(std::log10(size / step))) + 1, 3, 15));
  const double unit = size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1.0;
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step / unit) - 1e-9)), 0, 8);
  return fmt::format("{:.{}f}{}", value / unit, digits, unit == 1e6 ? "M" : unit == 1e3 ? "k" : "");
}

Axis::Axis(double low, double high, int max_ticks, bool is_log) : is_log_(is_log) {
  if (is_log) {
    make_log(std::log10(low), std::log10(high), max_ticks);
  } else {
    make_linear(std::clamp(low, -kLargest, kLargest), std::clamp(high, -kLargest, kLargest), max_ticks);
  }
}

double Axis::place(double value) const {
  const double known = is_log_ ? std::log10(value) : std::clamp(value, -kLargest, kLargest);
  return std::clamp((known - begin_) / (end_ - begin_), 0.0, 1.0);
}

void Axis::make_linear(double low, double high, int max_ticks) {
  // Numbers that are all equal, or nearly, get an axis, too.
  const double size = std::max(std::fabs(low), std::fabs(high));
  const double margin = high - low <= size * 1e-12 ? (size > 0.0 ? std::max(size * 0.1, 1e-300) : 1.0) : 0.0;
  low -= margin;
  high += margin;
  double step = round_step((high - low) / std::max(1, max_ticks - 1));
  long long num_steps = 0;
  for (;; step = round_step(step * 1.5)) {
    begin_ = std::floor(low / step + 1e-9) * step;
    num_steps = std::max(1LL, std::llround(std::ceil((high - begin_) / step - 1e-9)));
    if (num_steps < std::max(3, max_ticks)) break;
  }
  end_ = begin_ + static_cast<double>(num_steps) * step;
  for (long long i = 0; i <= num_steps; ++i) {
    const double value = begin_ + static_cast<double>(i) * step;
    ticks_.push_back({value, tick_label(value, step)});
  }
}

void Axis::make_log(double low, double high, int max_ticks) {
  begin_ = std::floor(low + 1e-9);
  end_ = std::max(begin_ + 1, std::ceil(high - 1e-9));
  const double step = std::max(1.0, std::ceil((end_ - begin_) / std::max(1, max_ticks - 1)));
  for (double power = begin_; power <= end_; power += step) {
    ticks_.push_back({std::pow(10.0, power), fmt::format("1e{:.0f}", power)});
  }
}

}  // namespace cohort::report
