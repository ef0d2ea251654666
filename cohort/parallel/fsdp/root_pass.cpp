#include "cohort/parallel/fsdp/root_pass.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/fsdp/groups/in_autograd.h"
#include "cohort/parallel/fsdp/settings/purpose.h"

namespace cohort::fsdp {
namespace {

const char* phase_in_words(int64_t phase) {
  constexpr const char* kWords[] = {"begins a forward pass", "is at the end of a backward pass"};
  return phase == 0 || phase == 1 ? kWords[phase] : "does something else";
}

}  // namespace

void RootPass::add(ParamGroup& group, bool is_root) {
  groups_.push_back(&group);
  group.join(context_, is_root);
  group.set_on_gradient([this] { note_gradient(); });
  const auto ranks = group.meeting_group();
  const auto is_same = [&](const Meeting& meeting) { return meeting.group == ranks; };
  if (!ranks || std::any_of(meetings_.begin(), meetings_.end(), is_same)) return;
  meetings_.push_back({ranks, at::zeros({kNumWords}, at::kLong), at::zeros({ranks->getSize(), kNumWords}, at::kLong)});
}

void RootPass::remove(ParamGroup& group) {
  std::erase(groups_, &group);
  std::erase_if(forward_order_, [&](const Use& use) { return use.group == &group; });
}

void RootPass::reset() {
  is_in_backward_ = was_thrown_ = is_broken_ = false;
  needs_meeting_ = true;  // not all ranks may have come this far
  forward_order_.clear();
  for (auto* const group : groups_) {
    group->modules_to_run().close();
    group->reset();
  }
}

// Makes autocast cast parameters anew in each pass. A cast shared by several passes would be the oldest node of all their graphs:
// backward of a later pass would come to it last, when that pass's gradients have already been reduced.
void RootPass::enter() {
  if (depth_++ > 0) return;
  caches_casts_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_cache_enabled(false);
}

void RootPass::leave() {
  if (--depth_ == 0) at::autocast::set_autocast_cache_enabled(caches_casts_);
}

// A recomputation by activation checkpointing during backward is not a new pass.
void RootPass::begin_forward() {
  enter();
  if (depth_ > 1 || is_in_autograd()) return;
  if (is_in_backward_ || is_broken_) reset();
  if (std::exchange(was_thrown_, false)) {
    for (auto* const group : groups_) group->abandon_forward();
  }
  if (const auto event = std::exchange(post_optim_event_, nullptr)) {
    context_->gather_stream.wait_for(*event);
  } else {
    context_->gather_stream.wait_for_current();
  }
  try {
    meet_before_pass();
  } catch (...) {
    leave();
    throw;
  }
}

void RootPass::end_forward(bool was_thrown) {
  // Inside another pass an exception may be caught; in backward, checkpointing ends its recomputation with an exception.
  leave();
  if (depth_ == 0 && !is_in_autograd()) was_thrown_ = was_thrown_ || was_thrown;
}

void RootPass::end_modules() {
  for (auto* const group : groups_) {
    if (!group->modules_to_run().is_open()) continue;
    group->modules_to_run().close();
    group->after_forward();
    record(*group);
  }
}

void RootPass::record(ParamGroup& group) {
  if (group.follows_passes() && at::GradMode::is_enabled() && !is_in_autograd()) forward_order_.push_back({&group});
}

void RootPass::meet_before_pass() {
  if (!needs_meeting_) return;
  for (auto* const group : groups_) group->refresh();
  meet(Phase::kForward);
  needs_meeting_ = false;
  for (auto* const group : groups_) group->forget_gradients();
}

void RootPass::note_backward() {
  TORCH_CHECK(!is_in_backward_ || !backward_.expired(),
              "[cohort] An exception has ended the last backward pass of a fully_shard module. Before another backward "
              "pass, call "
              "reset_iter_state() or begin a forward pass: both drop what it has left behind.");
  if (is_in_backward_) return;
  meet_before_pass();  // if one forward has several backward passes
  is_in_backward_ = true;
  const auto lifetime = std::make_shared<char>();
  backward_ = lifetime;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [pass = shared_from_this(), lifetime] { pass->finish_backward(); });
}

void RootPass::note_gradient() {
  note_backward();
  for (auto* const group : groups_) group->poll();
}

// Returns the group whose forward pass ended last before that of `group` which backward has reached now; null if it was the
// first.
ParamGroup* RootPass::used_before(ParamGroup& group) {
  for (size_t i = forward_order_.size(); i-- > 0;) {
    auto& use = forward_order_[i];
    if (use.group != &group || use.has_backward_begun) continue;
    use.has_backward_begun = true;
    return i > 0 ? forward_order_[i - 1].group : nullptr;
  }
  return nullptr;
}

void RootPass::before_backward(ParamGroup& group, const std::vector<ParamGroup*>& prefetched) {
  note_backward();
  if (!group.before_backward()) return;
  auto* const previous = used_before(group);
  for (auto other = prefetched.rbegin(); other != prefetched.rend(); ++other) (*other)->unshard(/*in_backward=*/true);
  if (prefetched.empty() && previous) previous->unshard(/*in_backward=*/true);
}

void RootPass::after_backward(ParamGroup& group) {
  note_backward();
  group.after_backward();
}

// Groups that forward used first come last: an order that does not depend on which parameters have gradients.
std::vector<ParamGroup*> RootPass::in_backward_order() const {
  std::vector<ParamGroup*> order;
  const auto add = [&](ParamGroup* group) {
    if (group->follows_passes() && std::find(order.begin(), order.end(), group) == order.end()) order.push_back(group);
  };
  for (const auto& use : forward_order_) add(use.group);
  for (auto* const group : groups_) add(group);
  std::reverse(order.begin(), order.end());
  return order;
}

void RootPass::finish_backward() {
  is_in_backward_ = false;
  try {
    finish_gathered();
    finish_in_one_memory();
    for (auto* const group : groups_) {
      if (group->settings().requires_gradient_sync) group->say_where_gradients_are();
    }
  } catch (...) {
    is_broken_ = true;
    throw;
  }
}

void RootPass::finish_gathered() {
  for (auto* const group : in_backward_order()) group->end_backward();
  if (!is_last_backward_) return;
  context_->finish_reductions();
  forward_order_.clear();
}

void RootPass::finish_in_one_memory() {
  std::vector<ParamGroup*> groups;
  std::copy_if(groups_.begin(), groups_.end(), std::back_inserter(groups), [](const ParamGroup* group) {
    return !group->follows_passes() && group->settings().requires_gradient_sync;
  });
  if (groups.empty()) return;
  needs_meeting_ = true;
  for (auto* const group : groups) group->end_backward();
  meet(Phase::kBackward);
  for (auto* const group : groups) group->reduce_rest();
}

void RootPass::meet(Phase phase) {
  for (auto& meeting : meetings_) meet(meeting, phase);
}

// The meeting before forward ends everybody's step: a rank that does not come may have been writing.
void RootPass::gather(Meeting& meeting, Phase phase) {
  try {
    all_gather_single(meeting.all, meeting.own, {.group = meeting.group});
  } catch (const c10::DistBackendError& error) {
    if (phase != Phase::kForward) throw;
    TORCH_CHECK_WITH(DistBackendError, false, error.what_without_backtrace(),
                     "\n  hint: restart all ranks from a checkpoint: a rank that dies in its optimizer's step can "
                     "leave its slice of the shared parameters half updated");
  }
}

void RootPass::meet(Meeting& meeting, Phase phase) {
  const at::NoGradGuard no_grad;
  const comm::CalledFor purpose(kMeeting);
  auto* const own = meeting.own.mutable_data_ptr<int64_t>();
  own[kPhase] = static_cast<int64_t>(phase);
  own[kNumPasses] = own[kRoot] = 0;
  for (const auto* const group : groups_) {
    own[kNumPasses] = std::max(own[kNumPasses], static_cast<int64_t>(group->num_passes()));
    if (group->meeting_group() == meeting.group) own[kRoot] = std::max(own[kRoot], group->number());
  }
  gather(meeting, phase);
  const auto* const theirs = meeting.all.const_data_ptr<int64_t>();
  const auto rank = meeting.group->getRank();
  for (int peer = 0; peer < meeting.group->getSize(); ++peer) {
    const bool is_same =
        theirs[kNumWords * peer + kPhase] == own[kPhase] && theirs[kNumWords * peer + kRoot] == own[kRoot];
    TORCH_CHECK_WITH(DistBackendError, is_same,
                     "[cohort] FullySharded: the ranks do not take the same steps\n  caused by: rank ", rank, " ",
                     position(meeting, rank), "\n  caused by: rank ", peer, " ", position(meeting, peer),
                     "\n  hint: ", comm::kUnevenStepsHint);
  }
  if (phase == Phase::kForward) agree_on_passes(meeting);
}

std::string RootPass::position(const Meeting& meeting, int peer) const {
  const auto* const words = meeting.all.const_data_ptr<int64_t>() + ptrdiff_t{kNumWords} * peer;
  std::string text = phase_in_words(words[kPhase]);
  if (words[kRoot] != meeting.own.const_data_ptr<int64_t>()[kRoot]) text += " of another fully_shard module";
  return text;
}

void RootPass::agree_on_passes(const Meeting& meeting) {
  const auto most = meeting.all.select(1, kNumPasses).max().item<int64_t>();
  for (auto* const group : groups_) {
    if (group->meeting_group() == meeting.group) group->set_num_passes(static_cast<uint64_t>(most));
  }
}

}  // namespace cohort::fsdp
