/// Compares two files of tensors of any formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

struct TensorPair {
  TensorInfo first;
  TensorInfo second;
  /// For tensors of one shape, the number of elements that differ. Zeros of either sign are equal, and so are NaNs.
  int64_t num_different = 0;
  /// The number of these of which one element is NaN or infinite.
  int64_t num_not_finite = 0;
  /// The largest difference of two finite elements; of complex elements, of their real or imaginary parts.
  double max_difference = 0;

  bool same_shape() const { return first.shape == second.shape; }
  bool same_dtype() const { return first.dtype == second.dtype; }
  bool is_same() const { return same_shape() && same_dtype() && num_different == 0; }
};

struct ValuePair {
  std::string name;
  /// The values as JSON (plain_json.h).
  std::string first;
  std::string second;
};

struct SourceComparison {
  /// Names of tensors and plain values.
  std::vector<std::string> only_in_first;
  std::vector<std::string> only_in_second;
  /// Tensors in both files that differ.
  std::vector<TensorPair> tensors;
  std::vector<ValuePair> values;
  int64_t num_same = 0;

  bool is_same() const { return only_in_first.empty() && only_in_second.empty() && tensors.empty() && values.empty(); }
};

base::Result<SourceComparison> compare_sources(const TensorSource& first, const TensorSource& second);

}  // namespace cohort::files
