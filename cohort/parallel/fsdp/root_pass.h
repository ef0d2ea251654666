/// RootPass: the forward and backward passes of a root and of what is nested in it: when they begin and end, and where the ranks
/// meet meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/base/purpose.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/param_group.h"

namespace cohort::fsdp {

class RootPass : public std::enable_shared_from_this<RootPass> {
 public:
  explicit RootPass(Group process_group);

  void add(ParamGroup& group);
  /// Its owner goes.
  void remove(ParamGroup& group);

  void begin_forward();
  void end_forward() { --depth_; }

 private:
  enum class Phase : int64_t { kForward, kBackward };

  void note_gradient();
  void finish_backward();
  void meet(Phase phase);
  void meet_before_pass();

  Group process_group_;
  std::vector<ParamGroup*> groups_;
  at::Tensor own_;
  at::Tensor all_;
  int depth_ = 0;
  bool needs_meeting_ = true;  ///< a rank may have written its shards since the last one
  bool is_in_backward_ = false;
};

}  // namespace cohort::fsdp
