/// The layout of a group's parameters in the memory that a host's ranks share, and each rank's shard of them. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

/// A range of elements of a flattened tensor.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Slice&) const = default;
};

/// Returns the slice that rank `rank` of `world_size` owns of a tensor of `sizes`, sharded along dimension 0 as by torch.chunk.
/// Requires at least one dimension.
COHORT_TEST_API Slice slice_of(const std::vector<int64_t>& sizes, int rank, int world_size);
/// Returns `sizes` with the number of rows of that slice.
COHORT_TEST_API std::vector<int64_t> shard_sizes(const std::vector<int64_t>& sizes, int rank, int world_size);

struct Layout {
  std::vector<size_t> offsets;  ///< in bytes, of each tensor
  size_t num_bytes = 0;
};
/// Lays out one tensor after the other, each on its own cache lines.
COHORT_TEST_API Layout lay_out(const std::vector<size_t>& num_bytes);

/// Decides which tensors are reduced together: neighbors, from the last to the first, in the order of backward; a chunk is closed
/// as soon as it has kChunkBytes.
constexpr size_t kChunkBytes = size_t{4} << 20;
COHORT_TEST_API std::vector<std::vector<size_t>> split_into_chunks(const std::vector<size_t>& num_bytes);

}  // namespace cohort::fsdp
