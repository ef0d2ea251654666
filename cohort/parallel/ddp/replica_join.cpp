#include "cohort/parallel/ddp/replica_join.h"

#include <ATen/ATen.h>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::ddp {

// The collectives of a step, in the order of before_forward(), after_forward() and backward.
void ReplicaJoinHook::main_hook() {
  auto& reducer = replica_.reducer();
  reducer.prepare_forward();
  using enum BufferCommHookLocation;
  if (replica_.synchronizes_buffers_at(kPreForward)) replica_.synchronize_buffers(/*is_candidate=*/false);
  const auto num_synchronized = at::zeros({1}, at::TensorOptions().device(replica_.join_device()));
  all_reduce(num_synchronized, {.group = replica_.join_process_group()});
  if (replica_.synchronizes_buffers_at(kPostForward)) replica_.synchronize_buffers(/*is_candidate=*/false);
  replica_.synchronizes_buffers_ = num_synchronized.item<float>() != 0;
  if (replica_.synchronizes_buffers_) reducer.shadow_step();
}

void ReplicaJoinHook::post_hook(bool is_last_joiner) {
  replica_.broadcast_states(replica_.find_common_rank(is_last_joiner), replica_.options().forward_sync_buffers);
}

}  // namespace cohort::ddp
