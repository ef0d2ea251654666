#include "cohort/parallel/fsdp/root_pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::fsdp {
namespace {

const char* phase_in_words(int64_t phase) {
  constexpr const char* kWords[] = {"begins a forward pass", "is at the end of a backward pass"};
  return phase == 0 || phase == 1 ? kWords[phase] : "does something else";
}

bool is_in_autograd() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

RootPass::RootPass(Group process_group)
    : process_group_(std::move(process_group)),
      own_(at::zeros({1}, at::kLong)),
      all_(at::zeros({process_group_->getSize()}, at::kLong)) {}

void RootPass::add(ParamGroup& group) {
  groups_.push_back(&group);
  group.set_on_gradient([this] { note_gradient(); });
}

void RootPass::remove(ParamGroup& group) { std::erase(groups_, &group); }

// What activation checkpointing computes again in the middle of backward is no new pass.
void RootPass::begin_forward() {
  if (depth_++ > 0 || is_in_autograd()) return;
  if (std::exchange(is_in_backward_, false)) {  // an exception has ended it
    for (auto* const group : groups_) group->reset();
  }
  meet_before_pass();
}

void RootPass::meet_before_pass() {
  if (!needs_meeting_) return;
  meet(Phase::kForward);
  needs_meeting_ = false;
  for (auto* const group : groups_) group->forget_gradients();
}

void RootPass::note_gradient() {
  if (!is_in_backward_) {
    meet_before_pass();  // where one forward has several backward passes
    is_in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [pass = shared_from_this()] { pass->finish_backward(); });
  }
  for (auto* const group : groups_) group->poll();
}

void RootPass::finish_backward() {
  is_in_backward_ = false;
  std::vector<ParamGroup*> groups;
  std::copy_if(groups_.begin(), groups_.end(), std::back_inserter(groups),
               [](const ParamGroup* group) { return group->requires_gradient_sync(); });
  if (groups.empty()) return;
  needs_meeting_ = true;
  for (auto* const group : groups) group->end_backward();
  meet(Phase::kBackward);
  for (auto* const group : groups) group->reduce_rest();
}

void RootPass::meet(Phase phase) {
  if (process_group_->getSize() == 1) return;
  const at::NoGradGuard no_grad;
  const base::CalledFor purpose(base::Purpose::kFsdpMeeting);
  *own_.mutable_data_ptr<int64_t>() = static_cast<int64_t>(phase);
  all_gather_single(all_, own_, {.group = process_group_});
  const auto* const theirs = all_.const_data_ptr<int64_t>();
  const auto rank = process_group_->getRank();
  for (int peer = 0; peer < process_group_->getSize(); ++peer) {
    TORCH_CHECK_WITH(DistBackendError, theirs[peer] == static_cast<int64_t>(phase),
                     "FullySharded: the ranks do not take the same steps\n  caused by: rank ", rank, " ",
                     phase_in_words(static_cast<int64_t>(phase)), "\n  caused by: rank ", peer, " ",
                     phase_in_words(theirs[peer]), "\n  hint: ", base::kUnevenStepsHint);
  }
}

}  // namespace cohort::fsdp
