/// Settings of one call of fully_shard at run time, with the names of FSDPModule's functions in
/// torch/distributed/fsdp/_fully_shard/_fully_shard.py. All ranks must set the same, and not while a pass runs.
///
/// If the ranks share memory, only requires_gradient_sync, requires_all_reduce and gradient_divide_factor matter: nothing is
/// gathered, and sums are computed differently.
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
  /// If false, gradients stay unsharded on their rank and accumulate until a backward pass with true reduces their sum.
  bool requires_gradient_sync = true;
  /// If false, with replicas: gradients are reduced among the ranks that share the parameters, and accumulate there until a pass
  /// with true.
  bool requires_all_reduce = true;
  std::optional<ReshardAfterForward> reshard_after_forward = {};
  /// If false, full parameters stay until reshard() is called, so that gradient accumulation gathers once. Free them before an
  /// optimizer step: a step changes shards only.
  bool reshard_after_backward = true;
  /// If false, backward does not gather the parameters of this call, as for a single embedding, which needs none.
  bool unshard_in_backward = true;
  /// The divisor of sums of gradients. If absent, the number of ranks.
  std::optional<double> gradient_divide_factor = {};
  /// Makes collectives only sum; divisions are done before and after.
  bool force_sum_reduction_for_comms = false;
  /// Gives parameters that no rank has used gradients of zeros. (Parameters that some ranks have used always have gradients
  /// everywhere.)
  bool reduce_scatter_unused_params = false;
  /// The group in which gradients are reduced. If null, that of the all-gathers.
  Group reduce_scatter_group = {};
  std::shared_ptr<AllGather> all_gather = std::make_shared<AllGather>();
  std::shared_ptr<ReduceScatter> reduce_scatter = std::make_shared<ReduceScatter>();
  /// Receives the sum of a rank's shards, flat, before it becomes gradients: it may reduce it further, in place.
  std::function<void(const at::Tensor& reduce_output)> all_reduce_hook = {};
  SideStream all_reduce_hook_stream = {};  ///< if empty, that of reductions
};

}  // namespace cohort::fsdp
