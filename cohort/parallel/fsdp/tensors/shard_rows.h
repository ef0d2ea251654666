/// Moves the shards of a tensor, which a group's ranks hold in rank order along one dimension, to rank 0 of the group and back.
/// One tensor at a time: only rank 0 ever has a full one.
///
/// Every function is collective. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::fsdp {

/// How the ranks share a tensor: the dimension, and the number of rows of each rank.
struct ShardRows {
  int64_t dim = 0;
  std::vector<int64_t> counts;
};

ShardRows rows_of_ranks(const at::Tensor& own, int64_t dim, const Group& group);

/// Returns: on rank 0 the full tensor, in memory of its own; elsewhere an undefined one. `rows`: of each rank's `own`.
at::Tensor gather_shards(const at::Tensor& own, const ShardRows& rows, const Group& group);

/// Returns: this rank's shard of rank 0's `full`, which only rank 0 reads; with the sizes, dtype and device of `like`.
at::Tensor scatter_shards(const at::Tensor& full, const at::Tensor& like, const ShardRows& rows, const Group& group);

}  // namespace cohort::fsdp
