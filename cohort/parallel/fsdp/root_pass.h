/// RootPass: the forward and backward passes of a root and the modules nested in it: when they begin and end, in which order
/// groups take part, and where the ranks of groups in shared memory meet.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/groups/param_group.h"

namespace cohort::fsdp {

class RootPass : public std::enable_shared_from_this<RootPass> {
 public:
  explicit RootPass(std::shared_ptr<CommContext> context) : context_(std::move(context)) {}

  /// Add the root last.
  void add(ParamGroup& group, bool is_root);
  /// Removes a group whose owner is destroyed.
  void remove(ParamGroup& group);
  CommContext& context() { return *context_; }
  /// Whether only one forward pass is running.
  bool is_outermost() const { return depth_ == 1; }

  void begin_forward();
  /// `was_thrown`: whether an exception ended it, so that the next pass starts afresh.
  void end_forward(bool was_thrown);
  /// Ends the forward passes of groups of which some modules have not run: none will follow.
  void end_modules();
  /// Notes that a forward pass of `group` is over that backward will follow.
  void record(ParamGroup& group);

  /// Notes that gradients of outputs of `group` are there. `prefetched`: groups to gather meanwhile; if empty, the group before
  /// it.
  void before_backward(ParamGroup& group, const std::vector<ParamGroup*>& prefetched);
  void after_backward(ParamGroup& group);

  /// If false, reductions may continue after the next backward passes.
  void set_is_last_backward(bool value) { is_last_backward_ = value; }
  /// Sets the event that marks the end of the optimizer step, instead of the current stream.
  void set_post_optim_event(std::shared_ptr<c10::Event> event) { post_optim_event_ = std::move(event); }
  /// Drops the remains of a pass that an exception has ended.
  void reset();
  /// Notes that a rank may have written its shards.
  void note_written() { needs_meeting_ = true; }

 private:
  enum class Phase : int64_t { kForward, kBackward };
  /// The words with which a rank tells the others where it is.
  enum Word { kPhase, kNumPasses, kRoot, kNumWords };
  struct Meeting {
    Group group;
    at::Tensor own;  ///< a number for each Word
    at::Tensor all;
  };
  /// A group's forward pass.
  struct Use {
    ParamGroup* group;
    bool has_backward_begun = false;
  };

  void enter();
  void leave();
  ParamGroup* used_before(ParamGroup& group);
  void note_backward();
  void note_gradient();
  void finish_backward();
  void finish_gathered();
  void finish_in_one_memory();
  std::vector<ParamGroup*> in_backward_order() const;
  void meet(Phase phase);
  void meet(Meeting& meeting, Phase phase);
  static void gather(Meeting& meeting, Phase phase);
  void meet_before_pass();
  std::string position(const Meeting& meeting, int peer) const;
  void agree_on_passes(const Meeting& meeting);

  std::vector<ParamGroup*> groups_;
  std::vector<Meeting> meetings_;  ///< one per process group
  std::shared_ptr<CommContext> context_;
  std::shared_ptr<c10::Event> post_optim_event_;
  std::vector<Use> forward_order_;  ///< of gathered groups
  std::weak_ptr<void> backward_;  ///< expires when autograd has released a backward pass, whether it has ended or threw
  int depth_ = 0;
  bool caches_casts_ = true;   ///< autocast does, outside forward
  bool needs_meeting_ = true;  ///< a rank may have written its shards since the last one
  bool is_in_backward_ = false;
  bool was_thrown_ = false;  ///< by a forward pass
  bool is_broken_ = false;   ///< the end of a backward pass has failed
  bool is_last_backward_ = true;
};

}  // namespace cohort::fsdp
