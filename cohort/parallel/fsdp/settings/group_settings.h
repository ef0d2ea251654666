/// What can be set of one call of fully_shard at run time, by the names of FSDPModule's functions in
/// torch/distributed/fsdp/_fully_shard/_fully_shard.py. All ranks must set the same, and not while a pass runs.
///
/// Where the ranks share one memory, only requires_gradient_sync, requires_all_reduce and gradient_divide_factor matter: there is
/// nothing to gather, and sums have a way of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>

#include "cohort/parallel/fsdp/settings/comm_plugins.h"
#include "cohort/parallel/fsdp/settings/options.h"
#include "cohort/parallel/fsdp/settings/side_stream.h"

namespace cohort::fsdp {

struct GroupSettings {
  /// False: gradients stay whole on their rank, and are added up there until a backward pass with true reduces their sum.
  bool requires_gradient_sync = true;
  /// False, with replicas: gradients are reduced among the ranks that share the parameters, and added up there until a pass with
  /// true.
  bool requires_all_reduce = true;
  std::optional<ReshardAfterForward> reshard_after_forward = {};
  /// False: whole parameters stay until somebody calls reshard(), so that accumulation gathers once. They must be let go before
  /// an optimizer step: a step changes shards only.
  bool reshard_after_backward = true;
  /// False: backward needs no parameters of this call, as of an embedding alone.
  bool unshard_in_backward = true;
  /// By what sums of gradients are divided; absent: the number of ranks.
  std::optional<double> gradient_divide_factor = {};
  /// Collectives only add up; what else is to be done is done before and after.
  bool force_sum_reduction_for_comms = false;
  /// Parameters that no rank has used get gradients of zeros. (Those that some ranks have used always have gradients everywhere.)
  bool reduce_scatter_unused_params = false;
  /// In which gradients are reduced; null: that of the all-gathers.
  Group reduce_scatter_group = {};
  std::shared_ptr<AllGather> all_gather = std::make_shared<AllGather>();
  std::shared_ptr<ReduceScatter> reduce_scatter = std::make_shared<ReduceScatter>();
  /// Told the sum of a rank's shards, flat, before it becomes gradients: it may reduce it further, in place.
  std::function<void(const at::Tensor& reduce_output)> all_reduce_hook = {};
  SideStream all_reduce_hook_stream = {};  ///< empty: that of reductions
};

}  // namespace cohort::fsdp
