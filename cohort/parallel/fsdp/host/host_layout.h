/// Where the parameters of a group lie in the memory that a host's ranks share, and which part of each is which rank's. Pure
/// arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

/// Elements of one flattened tensor.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Slice&) const = default;
};

/// What rank `rank` of `world_size` owns of a tensor of `sizes`, sharded along dimension 0 as by torch.chunk.
/// Requires at least one dimension.
COHORT_TEST_API Slice slice_of(const std::vector<int64_t>& sizes, int rank, int world_size);
/// `sizes` with the rows of that slice.
COHORT_TEST_API std::vector<int64_t> shard_sizes(const std::vector<int64_t>& sizes, int rank, int world_size);

struct Layout {
  std::vector<size_t> offsets;  ///< in bytes, of each tensor
  size_t num_bytes = 0;
};
/// One tensor after the other, each on cache lines of its own.
COHORT_TEST_API Layout lay_out(const std::vector<size_t>& num_bytes);

/// Which tensors are reduced together: neighbours, from the last to the first, as backward brings them; a chunk is closed as soon
/// as it has kChunkBytes.
constexpr size_t kChunkBytes = size_t{4} << 20;
COHORT_TEST_API std::vector<std::vector<size_t>> cut_into_chunks(const std::vector<size_t>& num_bytes);

}  // namespace cohort::fsdp
