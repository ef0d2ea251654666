#include "cohort/files/tensors/sources/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cohort/files/tensors/elements/elements.h"
#include "cohort/files/tensors/sources/tensor_pieces.h"

namespace cohort::files {
namespace {

// Sums with a second double for the rounding error of the first (Neumaier), so that a billion small numbers are not lost.
class ExactSum {
 public:
  void add(double number) {
    const double sum = sum_ + number;
    rest_ += std::fabs(sum_) >= std::fabs(number) ? (sum_ - sum) + number : (number - sum) + sum_;
    sum_ = sum;
  }
  double value() const { return sum_ + rest_; }

 private:
  double sum_ = 0;
  double rest_ = 0;
};

}  // namespace

base::Result<TensorStatistics> statistics_of(const TensorSource& source, size_t tensor) {
  const Dtype dtype = source.tensors()[tensor].dtype;
  const int step = components_of(dtype);
  TensorStatistics result;
  ExactSum sum, squares;
  std::vector<double> numbers;
  const auto read = for_each_piece(source, tensor, [&](std::string_view bytes, uint64_t) -> base::Result<void> {
    numbers.clear();
    append_numbers(dtype, bytes, numbers);
    for (size_t i = 0; i < numbers.size(); i += step) {
      const double number = step == 1 ? numbers[i] : std::hypot(numbers[i], numbers[i + 1]);
      if (std::isnan(number)) {
        ++result.num_nan;
      } else if (std::isinf(number)) {
        ++result.num_infinite;
      } else {
        result.min = result.num_finite == 0 ? number : std::min(result.min, number);
        result.max = result.num_finite == 0 ? number : std::max(result.max, number);
        ++result.num_finite;
        sum.add(number);
        squares.add(number * number);
      }
    }
    return {};
  });
  if (!read) return read.error();
  if (result.num_finite > 0) result.mean = sum.value() / static_cast<double>(result.num_finite);
  result.norm = std::sqrt(squares.value());
  return result;
}

}  // namespace cohort::files
