/// Region functions: with them a model's forward pass enters or leaves a part that the ranks of a group compute together.
/// Backward does the transpose of forward, as in Megatron-LM (megatron/core/tensor_parallel/mappings.py).
///
///     auto hidden = cohort::parallel::copy_to_region(x, tp).matmul(own_columns).relu();
///     auto y = cohort::parallel::reduce_from_region(hidden.matmul(own_rows), tp);    // on every rank what one process computes
///
/// | function                  | forward                  | backward                                       |
/// |---------------------------|--------------------------|------------------------------------------------|
/// | copy_to_region            | identity                 | sum of the ranks' gradients                    |
/// | reduce_from_region        | sum over the ranks       | identity                                       |
/// | scatter_to_region         | this rank's shard        | the full tensor                                |
/// | gather_from_region        | the full tensor          | this rank's shard; with kSum: of the sum       |
/// | reduce_scatter_to_region  | this rank's shard of the sum | the full tensor                            |
/// | all_to_all_region         | shards one dimension and gathers another | the reverse                    |
///
/// Shards are those of torch.chunk: the last ones may be short or empty. Dimensions may be negative. Results are new tensors,
/// except for functions that do nothing in forward. Derivatives of any order.
///
/// `group`: if null, the default group; if a rank is alone, or there are no groups, all functions return `input`. Forward and
/// backward are collective and block: every rank runs them, in the same order and with inputs that fit.
/// Throws c10::IndexError for a dimension that does not exist, c10::ValueError for wrong sizes and on ranks outside the group,
/// c10::DistBackendError if an exchange fails. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

COHORT_API at::Tensor copy_to_region(const at::Tensor& input, const Group& group = {});
COHORT_API at::Tensor reduce_from_region(const at::Tensor& input, const Group& group = {});
COHORT_API at::Tensor scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group = {});

/// How backward of gather_from_region treats the ranks' gradients.
enum class RegionGradient {
  kSame,  ///< all ranks continue with the same computation, so each takes its shard of its own gradient
  kSum    ///< each rank continues with its own share of a computation, so gradients are summed
};

struct GatherOptions {
  Group group = {};
  RegionGradient gradient = RegionGradient::kSame;
  /// Size of the result along the dimension. If absent, all ranks have shards of one size.
  std::optional<int64_t> size = {};
};

/// Throws c10::ValueError, with the division, if this rank's shard does not have its size.
COHORT_API at::Tensor gather_from_region(const at::Tensor& input, int64_t dim, const GatherOptions& options = {});

COHORT_API at::Tensor reduce_scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group = {});

/// Shards `scatter_dim` evenly; `gather_dim` becomes longer by a factor of the number of ranks.
/// Throws c10::ValueError, with the division, for a size that cannot be divided evenly, and if both dimensions are the same.
COHORT_API at::Tensor all_to_all_region(const at::Tensor& input, int64_t scatter_dim, int64_t gather_dim,
                                        const Group& group = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using parallel::copy_to_region;
using parallel::reduce_from_region;
using parallel::scatter_to_region;
using RegionGradient [[deprecated("use cohort::parallel::RegionGradient")]] = parallel::RegionGradient;
using GatherOptions [[deprecated("use cohort::parallel::GatherOptions")]] = parallel::GatherOptions;
using parallel::all_to_all_region;
using parallel::gather_from_region;
using parallel::reduce_scatter_to_region;
}  // namespace cohort
