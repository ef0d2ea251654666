#include "cohort/parallel/ddp/hooks/post_local_sgd_hook.h"

#include <fmt/format.h>

#include "cohort/base/log/log.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"

namespace cohort::ddp {

PostLocalSGDState::PostLocalSGDState(PostLocalSGDOptions options) : options_(std::move(options)) {
  base::log_info(fmt::format("Local SGD will be started after {} iterations", options_.start_local_sgd_iter));
}

void PostLocalSGDState::count(const GradBucket& bucket) {
  if (!bucket.is_last()) return;
  ++iter_;
  if (iter_ == options_.start_local_sgd_iter) {
    base::log_info(fmt::format("Start to apply local SGD after {} iterations.", iter_));
  }
}

CommHookFuture post_local_sgd_hook(const std::shared_ptr<PostLocalSGDState>& state, GradBucket& bucket) {
  auto& options = state->options_;
  if (state->iter_ < options.start_local_sgd_iter) {
    state->count(bucket);
    return all_reduce_average(options.process_group, bucket.buffer());
  }
  if (!options.post_local_gradient_allreduce) return completed_future(bucket.buffer());
  if (!options.subgroup) options.subgroup = new_subgroups().first;
  return all_reduce_average(options.subgroup, bucket.buffer());
}

}  // namespace cohort::ddp
