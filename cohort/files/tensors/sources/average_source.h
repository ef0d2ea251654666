/// AverageSource: the mean of several files of tensors that have the same ones, as a file of its own.
#pragma once

#include <memory>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Floats and complex numbers are added in float64 and rounded once; integers, booleans, 8-bit floats and plain values are those
/// of the last file.
class AverageSource final : public TensorSource {
 public:
  /// Fails, naming the first difference, unless all have the same tensors with the same shapes and dtypes. At least one.
  static base::Result<std::unique_ptr<TensorSource>> open(std::vector<std::unique_ptr<TensorSource>> sources);

  base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const override;

 private:
  explicit AverageSource(std::vector<std::unique_ptr<TensorSource>> sources);
  base::Result<void> read_piece(size_t tensor, uint64_t first_byte, std::span<char> to) const;

  std::vector<std::unique_ptr<TensorSource>> sources_;
  /// Of each source: the place of each tensor of the last one.
  std::vector<std::vector<size_t>> places_;
};

}  // namespace cohort::files
