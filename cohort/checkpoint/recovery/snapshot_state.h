/// SnapshotState: the state that a memory snapshot keeps, and how it is restored.
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
  /// Returns the current state of this rank: live tensors, on any device, and plain values. Called in the thread that calls
  /// step(). Must not be collective: a rank that can no longer keep snapshots does not call it.
  std::function<ShardedStateDict()> get;
  /// Restores a state from get(). Read the tensors only, and only during the call; shards come without their spec. If null, the
  /// values are copied into the tensors that get() returns, which must be the same ones; then there may be no plain values.
  std::function<void(const ShardedStateDict&)> set = nullptr;
  /// Whether full tensors of 64 KiB and more are equal on every rank that has them, as StateValue requires. Then each host keeps
  /// them once, each of its ranks a share. Every rank keeps its own smaller tensors, such as BatchNorm's statistics, which differ
  /// until they are broadcast. If false, every rank keeps all its tensors.
  bool full_tensors_are_equal = true;
  /// Whether a full tensor is not on every rank, by its name, such as the state of a ZeroRedundancyOptimizer, which only the
  /// parameter's owner has. Each rank keeps its own such tensors, and another number of ranks cannot go on from them. If null,
  /// there are none.
  std::function<bool(const std::string& name)> is_own = nullptr;
};

/// Returns the state of model and optimizer, as get_state_dict and set_state_dict (state/distributed_state.h) do, through DDP,
/// fully_shard and ZeroRedundancyOptimizer, and of LibTorch's default CPU generator. Model and optimizer must outlive the result,
/// and must be made in the same way after a restart.
COHORT_API SnapshotState snapshot_state(torch::nn::Module& module, torch::optim::Optimizer& optimizer);

}  // namespace cohort::checkpoint
