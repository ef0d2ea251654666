/// Hooks that make ZeroRedundancyOptimizer's step a part of DistributedDataParallel's reduction, bucket by bucket. As
/// torch/distributed/algorithms/ddp_comm_hooks/ddp_zero_hook.py.
///
///     auto zero = cohort::ZeroRedundancyOptimizer::make<torch::optim::Adam>(ddp->parameters(), options,
///                                                                           {.overlap_with_ddp = true});
///     ddp->register_comm_hook(cohort::default_group(),
///                             cohort::ddp::hook_with_zero_step_interleaved(cohort::ddp::allreduce_hook, zero));
///     for (...) {
///       zero.zero_grad();
///       loss_fn(ddp(input), target).backward();   // updates the parameters, too
///     }
///
/// Parameters belong to the ranks as without overlap, so a bucket may have several owners, and each broadcasts its part of it.
/// Unlike PyTorch's, these hooks update from the first step on, also if buckets are rebuilt, take several parameter groups, and
/// run on every backend: all ranks call the collectives in one order.
///
/// [Note: order] The hook of a bucket starts its reduction. Interleaved, it then completes the bucket before it: waits for that
/// reduction, updates this rank's parameters in it, and starts the broadcasts. All of this runs in the thread that runs backward.
/// The last bucket's hook waits for all broadcasts.
///
/// A parameter that no rank has used is updated with a gradient of zeros. Cannot be used with skip_all_reduce_unused_params,
/// sparse gradients, or a module that uses a parameter through parameter.detach() in backward of layers before it.
/// Thread-safety: as communication hooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"
#include "cohort/parallel/ddp/settings/grad_bucket.h"

namespace cohort {
class ZeroRedundancyOptimizer;
}

namespace cohort::zero {

/// The work of the hooks besides the reduction. The optimizer must live as long as backward passes run.
class COHORT_API OverlappedStep {
 public:
  enum class When : uint8_t { kAfterTheLastBucket, kInterleaved };

  /// Throws c10::ValueError if `zero` was made without overlap_with_ddp (PyTorch's text).
  OverlappedStep(ZeroRedundancyOptimizer& zero, When when);

  /// `reduced`: the hook's result for the bucket.
  void on_bucket(const ddp::GradBucket& bucket, const ddp::CommHookFuture& reduced);

 private:
  struct Pending {
    ddp::GradBucket bucket;
    ddp::CommHookFuture reduced;
  };
  // A rank's part of a bucket. The parameters are views of the flat tensor.
  struct Part {
    int owner = 0;
    std::vector<size_t> slots;
    std::vector<at::Tensor> params;
    at::Tensor flat;
  };
  struct Parts {
    std::vector<at::Tensor> params;
    std::vector<Part> of_owners;
  };

  void begin();
  void complete(const Pending& pending);
  const Parts& parts_of(const ddp::GradBucket& bucket);
  std::vector<Part> divided(const std::vector<at::Tensor>& params) const;
  void update(const Part& part, const Pending& pending);

  ZeroRedundancyOptimizer& zero_;
  When when_;
  std::vector<Parts> parts_;  // by bucket, as it was last seen
  // Of this step.
  std::vector<Pending> pending_;
  size_t num_completed_ = 0;
  std::vector<WorkPtr> broadcasts_;
};

template <class Hook>
auto hook_with(Hook hook, ZeroRedundancyOptimizer& zero, OverlappedStep::When when) {
  return [hook = std::move(hook), step = std::make_shared<OverlappedStep>(zero, when)](
             auto& state, ddp::GradBucket& bucket) mutable -> ddp::CommHookFuture {
    ddp::CommHookFuture reduced = hook(state, bucket);
    if (reduced) step->on_bucket(bucket, reduced);
    return reduced;
  };
}

}  // namespace cohort::zero

namespace cohort::ddp {

/// Returns `hook`, which reduces a bucket, followed, once the last bucket's reduction has begun, by the updates of all buckets,
/// one after the other, while later ones are still being reduced. Throws as OverlappedStep.
template <class Hook>
auto hook_with_zero_step(Hook hook, ZeroRedundancyOptimizer& zero) {
  return zero::hook_with(std::move(hook), zero, zero::OverlappedStep::When::kAfterTheLastBucket);
}

/// The same, but updates each bucket while backward continues, as soon as the next one's reduction has begun. See [Note: order].
template <class Hook>
auto hook_with_zero_step_interleaved(Hook hook, ZeroRedundancyOptimizer& zero) {
  return zero::hook_with(std::move(hook), zero, zero::OverlappedStep::When::kInterleaved);
}

}  // namespace cohort::ddp
