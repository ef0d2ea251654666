/// AverageSource: the mean of several files with the same tensors, as one file.
#pragma once

#include <memory>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Floats and complex numbers are summed in float64 and rounded once. Integers, booleans, 8-bit floats and plain values come from
/// the last file.
class AverageSource final : public TensorSource {
 public:
  /// Fails, and names the first difference, unless all files have the same tensors with the same shapes and dtypes. Requires at
  /// least one.
  static base::Result<std::unique_ptr<TensorSource>> open(std::vector<std::unique_ptr<TensorSource>> sources);

  base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const override;

 private:
  explicit AverageSource(std::vector<std::unique_ptr<TensorSource>> sources);
  base::Result<void> read_piece(size_t tensor, uint64_t first_byte, std::span<char> to) const;

  std::vector<std::unique_ptr<TensorSource>> sources_;
  /// For each source, the index of each tensor of the last source.
  std::vector<std::vector<size_t>> places_;
};

}  // namespace cohort::files
