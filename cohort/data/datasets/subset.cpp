#include "cohort/data/datasets/subset.h"

#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <numeric>

#include "cohort/comm/group/job_warning.h"

namespace cohort::data::detail {
namespace {

// Sums with a separate sum of rounding errors, as Python's sum() since 3.12.
double exact_sum(const std::vector<double>& values) {
  double sum = 0;
  double lost = 0;
  for (const double value : values) {
    const double next = sum + value;
    lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  }
  return sum + lost;
}

// math.isclose(sum, 1) and sum <= 1
bool is_one(double sum) { return std::abs(sum - 1) <= 1e-9 * std::max(std::abs(sum), 1.0) && sum <= 1; }

std::vector<int64_t> lengths_of(int64_t size, const std::vector<double>& fractions) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < fractions.size(); ++i) {
    TORCH_CHECK_VALUE(fractions[i] >= 0 && fractions[i] <= 1, "Fraction at index ", i, " is not between 0 and 1");
    lengths.push_back(static_cast<int64_t>(std::floor(static_cast<double>(size) * fractions[i])));
  }
  const int64_t num_left = size - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (int64_t i = 0; i < num_left; ++i) ++lengths[static_cast<size_t>(i) % lengths.size()];
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > 0) continue;
    comm::warn_once_per_job(c10::str("Length of split at index ", i, " is 0. This might result in an empty dataset."));
  }
  return lengths;
}

// Absent if the sum overflows.
std::optional<int64_t> sum_of(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (__builtin_add_overflow(sum, length, &sum)) return std::nullopt;
  }
  return sum;
}

std::vector<std::vector<int64_t>> cut(int64_t size, const std::vector<int64_t>& lengths,
                                      const std::optional<at::Generator>& generator) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    TORCH_CHECK_VALUE(lengths[i] >= 0, "[cohort] Length at index ", i, " is negative: ", lengths[i]);
  }
  TORCH_CHECK_VALUE(sum_of(lengths) == size, "Sum of input lengths does not equal the length of the input dataset!");
  const auto order = at::randperm(size, generator, at::TensorOptions().dtype(at::kLong));
  const int64_t* next = order.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> parts;
  for (const int64_t length : lengths) {
    parts.emplace_back(next, next + length);
    next += length;
  }
  return parts;
}

}  // namespace

int64_t index_in(const std::vector<int64_t>& indices, int64_t index) {
  const auto size = static_cast<int64_t>(indices.size());
  TORCH_CHECK_INDEX(index >= -size && index < size, "list index out of range");
  return indices[static_cast<size_t>(index < 0 ? index + size : index)];
}

std::vector<std::vector<int64_t>> split_at_random(int64_t size, const std::vector<int64_t>& lengths,
                                                  const std::optional<at::Generator>& generator) {
  if (sum_of(lengths) != 1) return cut(size, lengths, generator);
  return cut(size, lengths_of(size, {lengths.begin(), lengths.end()}), generator);
}

std::vector<std::vector<int64_t>> split_at_random(int64_t size, const std::vector<double>& fractions,
                                                  const std::optional<at::Generator>& generator) {
  TORCH_CHECK_VALUE(is_one(exact_sum(fractions)),
                    "Sum of input lengths does not equal the length of the input dataset!");
  return cut(size, lengths_of(size, fractions), generator);
}

}  // namespace cohort::data::detail
