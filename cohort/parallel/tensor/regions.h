/// Region functions: where a model's forward pass enters or leaves a part that the ranks of a group compute together. What they
/// do in forward, the transposed of it in backward, as in Megatron-LM (megatron/core/tensor_parallel/mappings.py).
///
///     auto hidden = cohort::copy_to_region(x, tp).matmul(own_columns).relu();
///     auto y = cohort::reduce_from_region(hidden.matmul(own_rows), tp);    // on every rank what one process computes
///
/// | function                  | forward                  | backward                                       |
/// |---------------------------|--------------------------|------------------------------------------------|
/// | copy_to_region            | nothing                  | sum of the ranks' gradients                    |
/// | reduce_from_region        | sum over the ranks       | nothing                                        |
/// | scatter_to_region         | this rank's part         | all ranks' parts together                      |
/// | gather_from_region        | all parts together       | this rank's part; with kSum: of the sum        |
/// | reduce_scatter_to_region  | this rank's part of the sum | all ranks' parts together                   |
/// | all_to_all_region         | one dimension is shared out, another is whole again | the other way round |
///
/// Parts are those of torch.chunk: the last ones may be short or empty. Dimensions may be negative. Results are new tensors, but
/// for functions that do nothing in forward. Derivatives of any order.
///
/// Null `group` is the default group; where a rank is alone, or there are no groups, all of these give `input` back. Forward and
/// backward are collective and block: every rank runs them, in the same order and with inputs that fit.
/// Throws c10::IndexError for a dimension that is not there, c10::ValueError for wrong sizes and on ranks outside the group,
/// c10::DistBackendError when an exchange fails. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

COHORT_API at::Tensor copy_to_region(const at::Tensor& input, const Group& group = {});
COHORT_API at::Tensor reduce_from_region(const at::Tensor& input, const Group& group = {});
COHORT_API at::Tensor scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group = {});

/// What becomes of the ranks' gradients of what gather_from_region gave.
enum class RegionGradient {
  kSame,  ///< all ranks go on alike, so each takes its part of its own
  kSum    ///< each rank goes on with its own share of a computation, so gradients are summed
};

struct GatherOptions {
  Group group = {};
  RegionGradient gradient = RegionGradient::kSame;
  /// Of the result along the dimension. Absent: all ranks have parts of one size.
  std::optional<int64_t> size = {};
};

/// Throws c10::ValueError, with the division, where this rank's part does not have the size that is its share.
COHORT_API at::Tensor gather_from_region(const at::Tensor& input, int64_t dim, const GatherOptions& options = {});

COHORT_API at::Tensor reduce_scatter_to_region(const at::Tensor& input, int64_t dim, const Group& group = {});

/// `scatter_dim` is shared out evenly, `gather_dim` becomes as many times as long as there are ranks.
/// Throws c10::ValueError, with the division, for a size that does not divide, and for twice the same dimension.
COHORT_API at::Tensor all_to_all_region(const at::Tensor& input, int64_t scatter_dim, int64_t gather_dim,
                                        const Group& group = {});

}  // namespace cohort
