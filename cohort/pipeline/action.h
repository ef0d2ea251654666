/// Action: one step of a rank in a pipeline. Lists of actions describe the work of all ranks in a step of training. Lists can be
/// planned (schedules.h), read and written (csv.h), checked before they run (simulation.h) and drawn.
///
/// A *stage* is a part of the model; stages are numbered from 0 in the order in which activations pass through them. A
/// *microbatch* is a part of the batch. Names, texts and semantics follow _Action of torch/distributed/pipelining/schedules.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::pipeline {

enum class ActionKind : uint8_t {
  /// Waits for as long as an action takes. Only used to draw lists: a rank that runs the list does not wait.
  kIdle,
  kForward,
  /// Computes only the gradients of the stage's inputs, so that the previous stage can go on; kBackwardWeight follows.
  kBackwardInput,
  kBackwardWeight,
  /// Computes both at once.
  kFullBackward,
  /// Gathers the parameters of a sharded stage, and frees them.
  kUnshard,
  kReshard,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  /// Runs forward of one stage and backward of another, which an engine may overlap; see Action::parts.
  kOverlap,
  /// Scales the gradients of all microbatches, and reduces them over the ranks that have the same stage.
  kReduceGrad,
};

struct Action {
  ActionKind kind = ActionKind::kIdle;
  /// -1 if it has no stage: kIdle, kOverlap.
  int stage = -1;
  /// -1 if it has no microbatch: also kUnshard, kReshard, kReduceGrad.
  int microbatch = -1;
  /// The parts of kOverlap, in the order in which they run.
  std::vector<Action> parts = {};

  bool operator==(const Action& other) const {
    return kind == other.kind && stage == other.stage && microbatch == other.microbatch && parts == other.parts;
  }
};

using ActionList = std::vector<Action>;
/// The list of each rank.
using PipelineOrder = std::vector<ActionList>;
/// The rank of each stage.
using StageRanks = std::vector<int>;

/// Limits for lists. A list beyond them is a damaged file, not a real pipeline.
inline constexpr int kMostRanks = 1024;
inline constexpr int kMostStages = 16384;
inline constexpr int kMostMicrobatches = 1 << 20;
inline constexpr size_t kMostActions = size_t{1} << 20;

/// Whether the action computes: forward, backward, kOverlap.
inline bool is_compute(ActionKind kind) {
  return (kind >= ActionKind::kForward && kind <= ActionKind::kFullBackward) || kind == ActionKind::kOverlap;
}
inline bool is_send(ActionKind kind) { return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward; }
inline bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveForward || kind == ActionKind::kReceiveBackward;
}
inline bool has_microbatch(ActionKind kind) {
  return (is_compute(kind) && kind != ActionKind::kOverlap) || is_send(kind) || is_receive(kind);
}

/// Calls `function(action)` for the action, or for each of its parts.
template <class Function>
void for_each_part(const Action& action, Function function) {
  if (action.kind != ActionKind::kOverlap) return function(action);
  for (const Action& part : action.parts) function(part);
}

}  // namespace cohort::pipeline
