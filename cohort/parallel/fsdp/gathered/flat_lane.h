/// Flat lanes: parameters of one dtype side by side, so that one collective moves all of them. A lane is a matrix with one row
/// per rank; a row holds that rank's chunk of each parameter. All chunks of a parameter have the same size: chunks that
/// torch.chunk makes shorter or empty are padded.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

/// The division of a tensor along dimension `dim`, as by torch.chunk.
struct COHORT_TEST_API Chunking {
  std::vector<int64_t> sizes;  ///< of the full tensor
  int64_t dim = 0;
  int num_ranks = 1;

  /// The number of elements of the largest chunk, which is rank 0's.
  int64_t chunk() const;
  /// The shape of a rank's shard.
  std::vector<int64_t> shard_sizes(int rank) const;
};

struct Lane {
  std::vector<size_t> members;   ///< indices of parameters
  std::vector<int64_t> offsets;  ///< of each member's chunk in a row
  int64_t width = 0;             ///< number of elements of a row
};

/// Makes a lane for each value of `keys`, in the order in which they first occur. `chunks`: number of elements of each
/// parameter's chunk.
COHORT_TEST_API std::vector<Lane> make_lanes(const std::vector<int64_t>& keys, const std::vector<int64_t>& chunks);

/// Copy between a full tensor and its rows. `rows`: (num_ranks, chunk), a part of a lane; `full`: contiguous, of chunking.sizes.
/// Dtypes and devices may differ. copy_to_rows fills the padding with zeros.
COHORT_TEST_API void copy_to_rows(const at::Tensor& full, const Chunking& chunking, const at::Tensor& rows);
COHORT_TEST_API void copy_from_rows(const at::Tensor& rows, const Chunking& chunking, const at::Tensor& full);

}  // namespace cohort::fsdp
