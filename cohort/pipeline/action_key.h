/// An action as a number, for tables.
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

using ActionKey = uint64_t;

inline ActionKey key_of(ActionKind kind, int stage, int microbatch) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(static_cast<uint32_t>(stage) & 0xffffff) << 32 |
         static_cast<uint32_t>(microbatch);
}
inline ActionKey key_of(const Action& action) { return key_of(action.kind, action.stage, action.microbatch); }
inline Action action_of(ActionKey key) {
  return {static_cast<ActionKind>(key >> 56), static_cast<int>(key >> 32 & 0xffffff),
          static_cast<int>(static_cast<uint32_t>(key))};
}

/// Returns the receive for a send, or the send for a receive.
inline Action counterpart(const Action& action) {
  const int stage = action.stage;
  switch (action.kind) {
    case ActionKind::kSendForward:
      return {ActionKind::kReceiveForward, stage + 1, action.microbatch};
    case ActionKind::kReceiveForward:
      return {ActionKind::kSendForward, stage - 1, action.microbatch};
    case ActionKind::kSendBackward:
      return {ActionKind::kReceiveBackward, stage - 1, action.microbatch};
    default:
      return {ActionKind::kSendBackward, stage + 1, action.microbatch};
  }
}

/// Returns the action that sends the result of `action` to another rank; nothing if no other rank needs it.
inline std::optional<Action> send_of(const Action& action, const StageRanks& stage_ranks) {
  const int num_stages = static_cast<int>(stage_ranks.size());
  const bool is_forward = action.kind == ActionKind::kForward;
  if (!is_forward && action.kind != ActionKind::kFullBackward && action.kind != ActionKind::kBackwardInput) return {};
  const int next = is_forward ? action.stage + 1 : action.stage - 1;
  if (next < 0 || next >= num_stages) return {};
  if (stage_ranks[static_cast<size_t>(next)] == stage_ranks[static_cast<size_t>(action.stage)]) return {};
  return Action{is_forward ? ActionKind::kSendForward : ActionKind::kSendBackward, action.stage, action.microbatch};
}

}  // namespace cohort::pipeline
