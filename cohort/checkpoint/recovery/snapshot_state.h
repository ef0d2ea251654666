/// What a memory snapshot keeps, and how it comes back.
#pragma once

#include <functional>
#include <string>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::checkpoint {

struct SnapshotState {
  /// What this rank has now: live tensors, on whatever device, and plain values. Called in the thread that calls step(). Not
  /// to be collective: a rank that can keep no snapshots any more does not call it.
  std::function<ShardedStateDict()> get;
  /// Takes back what get() gave. The tensors are to be read only, and only during the call; parts come without their spec.
  /// Null: they are copied into the tensors that get() gives, which must be the same ones then; there may be no plain values.
  std::function<void(const ShardedStateDict&)> set = nullptr;
  /// Whole tensors of 64 KiB and more are the same on every rank that has them, as StateValue promises: then each host keeps them
  /// once, its ranks a share each. Smaller ones are always kept by each rank, such as BatchNorm's statistics, which differ until
  /// they are broadcast. False: every rank keeps all that it has.
  bool whole_tensors_are_alike = true;
  /// Names of whole tensors that are not on every rank, as the state of a ZeroRedundancyOptimizer is on the parameter's owner
  /// alone: each rank keeps its own of them, and another number of ranks cannot go on from it. Null: there are none.
  std::function<bool(const std::string& name)> is_own = nullptr;
};

/// Model and optimizer as get_state_dict and set_state_dict (state/distributed_state.h) know them, through DDP, fully_shard and
/// ZeroRedundancyOptimizer, and LibTorch's default CPU generator. Both must outlive the result, and be made in the same way after
/// a restart.
COHORT_API SnapshotState snapshot_state(torch::nn::Module& module, torch::optim::Optimizer& optimizer);

}  // namespace cohort::checkpoint
