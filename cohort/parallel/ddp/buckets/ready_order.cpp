#include "cohort/parallel/ddp/buckets/ready_order.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <numeric>

#include "cohort/parallel/ddp/buckets/agree_on_buckets.h"

namespace cohort::ddp {

void ReadyOrder::note_any_order() {
  if (!is_wanted()) return;
  order_.resize(input_.parameters.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
}

BucketPlan ReadyOrder::rebuild() {
  const auto& group = input_.options.process_group;
  auto plan = plan_buckets_in_order(input_.infos, rebuild_limits(input_.capacity), order_);
  if (group->getSize() > 1) plan = agree_on_buckets(group, plan, input_.parameters.front().device());
  has_rebuilt_ = true;
  order_.clear();
  return plan;
}

}  // namespace cohort::ddp
