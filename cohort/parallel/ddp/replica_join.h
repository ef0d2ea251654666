/// The work of a replica on a rank whose data has ended, in place of a step: _DDPJoinHook of torch/nn/parallel/distributed.py.
#pragma once

#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/module/join.h"

namespace cohort::ddp {

class ReplicaJoinHook final : public JoinHook {
 public:
  explicit ReplicaJoinHook(Replica& replica) : replica_(replica) {}

  void main_hook() override;
  /// Gives all ranks the model of the last joiner; if there are several, of the one with the largest rank.
  void post_hook(bool is_last_joiner) override;

 private:
  Replica& replica_;
};

}  // namespace cohort::ddp
