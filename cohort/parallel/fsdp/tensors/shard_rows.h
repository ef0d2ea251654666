/// The shards of a tensor, which a group's ranks hold together, rank after rank along one dimension, on their way to rank 0 of
/// the group and back. One tensor at a time: nobody but rank 0 ever has a whole one.
///
/// Every function is collective. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::fsdp {

/// How the ranks share a tensor: along which dimension, and how many rows of it each of them has.
struct ShardRows {
  int64_t dim = 0;
  std::vector<int64_t> counts;
};

ShardRows rows_of_ranks(const at::Tensor& own, int64_t dim, const Group& group);

/// Returns: on rank 0 the whole tensor, in memory of its own; elsewhere an undefined one. `rows`: of each rank's `own`.
at::Tensor gather_shards(const at::Tensor& own, const ShardRows& rows, const Group& group);

/// Returns: this rank's part of rank 0's `full`, which only rank 0 reads; of the sizes, dtype and device of `like`.
at::Tensor scatter_shards(const at::Tensor& full, const at::Tensor& like, const ShardRows& rows, const Group& group);

}  // namespace cohort::fsdp
