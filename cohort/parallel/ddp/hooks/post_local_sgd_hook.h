/// Post-local SGD (torch/distributed/algorithms/ddp_comm_hooks/post_localSGD_hook.py): averages gradients over all ranks for some
/// iterations, and then only over a subgroup, or not at all; the program then averages the models from time to time.
/// Paper: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020.
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

struct PostLocalSGDOptions {
  /// Averages gradients in the first iterations. If null, the default group.
  Group process_group = {};
  /// Averages gradients afterwards. If null, new_subgroups(), which needs CUDA.
  Group subgroup = {};
  /// Number of iterations with `process_group`.
  int64_t start_local_sgd_iter = 0;
  /// If false, each rank keeps its own gradients afterwards.
  bool post_local_gradient_allreduce = true;
};

class COHORT_API PostLocalSGDState {
 public:
  explicit PostLocalSGDState(PostLocalSGDOptions options);

  const PostLocalSGDOptions& options() const { return options_; }
  /// The number of iterations done while gradients were averaged over all ranks.
  int64_t iter() const { return iter_; }

 private:
  friend COHORT_API CommHookFuture post_local_sgd_hook(const std::shared_ptr<PostLocalSGDState>&, GradBucket&);
  void count(const GradBucket& bucket);

  PostLocalSGDOptions options_;
  int64_t iter_ = 0;
};

/// ddp->register_comm_hook(std::make_shared<PostLocalSGDState>(options), post_local_sgd_hook)
COHORT_API CommHookFuture post_local_sgd_hook(const std::shared_ptr<PostLocalSGDState>& state, GradBucket& bucket);

}  // namespace cohort::ddp
