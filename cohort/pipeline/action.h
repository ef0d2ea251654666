/// Action: one thing that a rank of a pipeline does, and lists of them, by which all ranks' work in a step is described. What a
/// list says can be planned (schedules.h), read and written (csv.h), checked before it runs (simulation.h) and drawn.
///
/// Vocabulary: a *stage* is a part of the model, numbered from 0 in the order in which activations pass; a *microbatch* is a
/// part of the batch. Names, texts and semantics follow _Action of torch/distributed/pipelining/schedules.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::pipeline {

enum class ActionKind : uint8_t {
  /// Nothing, for as long as an action takes: to draw lists. Nobody waits when it runs.
  kIdle,
  kForward,
  /// Gradients of the stage's inputs alone, so that the previous stage can go on; kBackwardWeight follows.
  kBackwardInput,
  kBackwardWeight,
  /// Both at once.
  kFullBackward,
  /// The parameters of a sharded stage are gathered, and let go.
  kUnshard,
  kReshard,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  /// Forward of one stage and backward of another, which an engine may overlap; see Action::parts.
  kOverlap,
  /// What all microbatches' backwards left is scaled, and reduced over ranks that have the same stage.
  kReduceGrad,
};

struct Action {
  ActionKind kind = ActionKind::kIdle;
  /// -1 where it has none: kIdle, kOverlap.
  int stage = -1;
  /// -1 where it has none: also kUnshard, kReshard, kReduceGrad.
  int microbatch = -1;
  /// Of kOverlap, in the order in which they run.
  std::vector<Action> parts = {};

  bool operator==(const Action& other) const {
    return kind == other.kind && stage == other.stage && microbatch == other.microbatch && parts == other.parts;
  }
};

using ActionList = std::vector<Action>;
/// Each rank's list.
using PipelineOrder = std::vector<ActionList>;
/// The rank that has each stage.
using StageRanks = std::vector<int>;

/// What lists may hold: more is no pipeline that anybody runs, but a damaged file.
inline constexpr int kMostRanks = 1024;
inline constexpr int kMostStages = 16384;
inline constexpr int kMostMicrobatches = 1 << 20;
inline constexpr size_t kMostActions = size_t{1} << 20;

/// Something is computed: forward, backward, kOverlap.
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
