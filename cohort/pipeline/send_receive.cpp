#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/pipeline/action_key.h"
#include "cohort/pipeline/action_text.h"
#include "cohort/pipeline/lowering.h"

namespace cohort::pipeline {
namespace {

constexpr int kMostRanksInText = 8;

class SendReceiveAdder {
 public:
  SendReceiveAdder(const PipelineOrder& order, const StageRanks& stage_ranks)
      : order_(order), stage_ranks_(stage_ranks), ranks_(order.size()), result_(order.size()) {}

  base::Result<PipelineOrder> add() {
    for (bool is_over = false; !is_over;) {
      bool has_progress = false;
      is_over = true;
      for (size_t rank = 0; rank < order_.size(); ++rank) {
        if (ranks_[rank].next == order_[rank].size()) continue;
        is_over = false;
        has_progress = try_next(rank) || has_progress;
      }
      if (!is_over && !has_progress) return stuck();
    }
    return std::move(result_);
  }

 private:
  struct RankState {
    size_t next = 0;
    bool is_blocked = false;  ///< until it receives something
    std::unordered_set<ActionKey> done;
  };

  bool has_done(const RankState& state, ActionKind kind, int stage, int microbatch) const {
    return state.done.contains(key_of(kind, stage, microbatch));
  }

  bool is_ready(const RankState& state, const Action& action) const {
    const auto has = [&](ActionKind kind, int stage) { return has_done(state, kind, stage, action.microbatch); };
    const int stage = action.stage;
    if (action.kind == ActionKind::kForward && stage != 0) {
      return has(ActionKind::kReceiveForward, stage) || has(ActionKind::kForward, stage - 1);
    }
    const bool goes_back = action.kind == ActionKind::kFullBackward || action.kind == ActionKind::kBackwardInput;
    if (goes_back && stage != static_cast<int>(stage_ranks_.size()) - 1) {
      return has(ActionKind::kReceiveBackward, stage) || has(ActionKind::kBackwardInput, stage + 1) ||
             has(ActionKind::kFullBackward, stage + 1);
    }
    return true;
  }

  bool try_next(size_t rank) {
    RankState& state = ranks_[rank];
    if (state.is_blocked) return false;
    const Action& action = order_[rank][state.next];
    if (action.kind != ActionKind::kIdle) {
      bool ready = true;
      for_each_part(action, [&](const Action& part) { ready = ready && is_ready(state, part); });
      state.is_blocked = !ready;
      if (!ready) return false;
      result_[rank].push_back(action);
      for_each_part(action, [&](const Action& part) { complete(rank, part); });
    }
    ++state.next;
    return true;
  }

  void complete(size_t rank, const Action& action) {
    ranks_[rank].done.insert(key_of(action));
    const auto send = send_of(action, stage_ranks_);
    if (!send) return;
    const Action receive = counterpart(*send);
    const auto peer = static_cast<size_t>(stage_ranks_[static_cast<size_t>(receive.stage)]);
    result_[rank].push_back(*send);
    result_[peer].push_back(receive);
    ranks_[peer].done.insert(key_of(receive));
    ranks_[peer].is_blocked = false;
  }

  base::Error stuck() const {
    std::string text = "Malformed compute schedule, can't schedule sends/recvs";
    int num_named = 0;
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      const size_t next = ranks_[rank].next;
      if (next == order_[rank].size() || ++num_named > kMostRanksInText) continue;
      text += fmt::format("\n  rank {} cannot go on with {} at step {}: no action before it computes its input", rank,
                          text_of(order_[rank][next]), next);
    }
    return base::Error(text);
  }

  const PipelineOrder& order_;
  const StageRanks& stage_ranks_;
  std::vector<RankState> ranks_;
  PipelineOrder result_;
};

class ReceiveDeferrer {
 public:
  ReceiveDeferrer(int rank, const StageRanks& stage_ranks) : rank_(rank), stage_ranks_(stage_ranks) {}

  base::Result<ActionList> defer(const ActionList& list) {
    for (const Action& action : list) {
      if (is_receive(action.kind)) {
        deferred_.push_back(action);
        continue;
      }
      // Of two ranks that send to each other the lower one receives first, so that one of them has a partner.
      if (const int peer = is_send(action.kind) ? peer_of(action) : -1; rank_ < peer) {
        flush([&](const Action& receive) { return peer_of(receive) == peer; });
      }
      for_each_part(action,
                    [&](const Action& part) { flush([&](const Action& receive) { return needs(part, receive); }); });
      result_.push_back(action);
    }
    if (deferred_.empty()) return std::move(result_);
    return base::Error(
        fmt::format("Malformed input schedule on rank {}: leftover RECV ops with no consumer found: {}. Every "
                    "RECV must be consumed by a downstream compute op.",
                    rank_, text_of(deferred_.front())));
  }

 private:
  int peer_of(const Action& action) const { return stage_ranks_[static_cast<size_t>(counterpart(action).stage)]; }

  static bool needs(const Action& action, const Action& receive) {
    if (action.stage != receive.stage || action.microbatch != receive.microbatch) return false;
    if (receive.kind == ActionKind::kReceiveForward) return action.kind == ActionKind::kForward;
    return action.kind == ActionKind::kFullBackward || action.kind == ActionKind::kBackwardInput;
  }

  // Writes the receives for which `condition` holds, and earlier messages of the same ranks, so that messages keep their order.
  template <class Condition>
  void flush(Condition condition) {
    std::unordered_set<int> peers;
    std::vector<bool> is_flushed(deferred_.size());
    for (size_t i = deferred_.size(); i-- > 0;) {
      if (condition(deferred_[i])) peers.insert(peer_of(deferred_[i]));
      is_flushed[i] = peers.contains(peer_of(deferred_[i]));
    }
    ActionList left;
    for (size_t i = 0; i < deferred_.size(); ++i) (is_flushed[i] ? result_ : left).push_back(deferred_[i]);
    deferred_ = std::move(left);
  }

  int rank_;
  const StageRanks& stage_ranks_;
  ActionList deferred_;
  ActionList result_;
};

}  // namespace

base::Result<PipelineOrder> add_send_receive(const PipelineOrder& order, const StageRanks& stage_ranks) {
  return SendReceiveAdder(order, stage_ranks).add();
}

base::Result<PipelineOrder> defer_receives(const PipelineOrder& order, const StageRanks& stage_ranks) {
  PipelineOrder result;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    auto list = ReceiveDeferrer(static_cast<int>(rank), stage_ranks).defer(order[rank]);
    if (!list) return std::move(list).error();
    result.push_back(std::move(*list));
  }
  return result;
}

}  // namespace cohort::pipeline
