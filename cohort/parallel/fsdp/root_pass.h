/// RootPass: the forward and backward passes of a root and of what is nested in it: when they begin and end, and where the ranks
/// meet meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/purpose.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/param_group.h"

namespace cohort::fsdp {

class RootPass {
 public:
  explicit RootPass(Group process_group);

  void add(ParamGroup& group);
  /// Its owner goes.
  void remove(ParamGroup& group);

  void begin_forward();
  void end_forward() { --depth_; }
  /// Blocks until every rank is here, or throws.
  void meet_for_write();

 private:
  enum class Phase : int64_t { kForward, kBackward, kWrite };

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
  int64_t num_meetings_ = 0;
};

}  // namespace cohort::fsdp
