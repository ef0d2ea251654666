#include "cohort/pipeline/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/pipeline/action_key.h"
#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {
namespace {

struct StageCounts {
  int forwards = 0, full_backwards = 0, inputs = 0, weights = 0;
};

class ComputeValidator {
 public:
  ComputeValidator(const PipelineOrder& order, const PipelineShape& shape, OrderFormat format)
      : order_(order),
        shape_(shape),
        format_(format),
        ranks_(static_cast<size_t>(shape.num_stages), -1),
        counts_(static_cast<size_t>(shape.num_stages)) {}

  base::Result<StageRanks> validate() {
    if (static_cast<int>(order_.size()) != shape_.num_ranks) {
      return base::Error(fmt::format("Schedule has incorrect number of ranks - expected {}, actual {}",
                                     shape_.num_ranks, order_.size()));
    }
    for (rank_ = 0; rank_ < order_.size(); ++rank_) {
      for (step_ = 0; step_ < order_[rank_].size(); ++step_) {
        if (auto fine = check(order_[rank_][step_]); !fine) return fine.error();
      }
    }
    for (int stage = 0; stage < shape_.num_stages; ++stage) {
      if (auto fine = check_counts(stage, counts_[static_cast<size_t>(stage)]); !fine) return fine.error();
    }
    return std::move(ranks_);
  }

 private:
  base::Error error(std::string_view message) const {
    return base::Error(fmt::format("Rank {}, step {}: {}", rank_, step_, message));
  }

  base::Result<void> check(const Action& action) {
    if (action.kind == ActionKind::kIdle && format_ == OrderFormat::kComputeComms) {
      return error("Expected action to be not None: a list with communication has no idle steps");
    }
    if (action.kind == ActionKind::kIdle) return {};
    if (format_ == OrderFormat::kComputeOnly && !is_compute(action.kind)) {
      return base::Error(
          fmt::format("Expected compute-only schedule but found communication action '{}' at rank {}, position "
                      "{}. Communication actions (e.g. SEND_F, RECV_F, etc.) should not be present when "
                      "format='compute_only'.",
                      text_of(action), rank_, step_));
    }
    base::Result<void> fine;
    const bool computes = std::all_of(action.parts.begin(), action.parts.end(), [](const Action& part) {
      return is_compute(part.kind) && part.kind != ActionKind::kOverlap;
    });
    if (!computes) return error(fmt::format("{} has parts that compute nothing", text_of(action)));
    for_each_part(action, [&](const Action& part) {
      if (fine) fine = check_part(part);
    });
    return fine;
  }

  base::Result<void> check_part(const Action& action) {
    if (action.stage < 0 || action.stage >= shape_.num_stages) {
      return error(
          fmt::format("{} is of stage {}, but the pipeline has {}", text_of(action), action.stage, shape_.num_stages));
    }
    const bool has_none = action.microbatch < 0 && has_microbatch(action.kind);
    if (has_none || action.microbatch >= shape_.num_microbatches) {
      return error(fmt::format("{} is of microbatch {}, but the batch has {}", text_of(action), action.microbatch,
                               shape_.num_microbatches));
    }
    if (has_microbatch(action.kind) && !seen_.insert(key_of(action)).second) {
      return error(fmt::format("{} runs a second time", text_of(action)));
    }
    if (auto fine = count(action); !fine) return fine;
    int& rank = ranks_[static_cast<size_t>(action.stage)];
    if (rank >= 0 && rank != static_cast<int>(rank_)) {
      return error(fmt::format("Stage {} is assigned to both rank {} and rank {}", action.stage, rank_, rank));
    }
    rank = static_cast<int>(rank_);
    return {};
  }

  base::Result<void> needs(const Action& action, std::string_view what, ActionKind before,
                           std::string_view name) const {
    if (seen_.contains(key_of(before, action.stage, action.microbatch))) return {};
    return error(fmt::format("Running {} for stage {}, microbatch {} without first running {}", what, action.stage,
                             action.microbatch, name));
  }

  base::Result<void> count(const Action& action) {
    StageCounts& counts = counts_[static_cast<size_t>(action.stage)];
    switch (action.kind) {
      case ActionKind::kForward:
        ++counts.forwards;
        return {};
      case ActionKind::kFullBackward:
        ++counts.full_backwards;
        return needs(action, "Full Backward", ActionKind::kForward, "Forward");
      case ActionKind::kBackwardInput:
        ++counts.inputs;
        return needs(action, "Backward Input", ActionKind::kForward, "Forward");
      case ActionKind::kBackwardWeight:
        ++counts.weights;
        return needs(action, "Backward Weight", ActionKind::kBackwardInput, "Backward Input");
      default:
        return {};
    }
  }

  base::Result<void> check_counts(int stage, const StageCounts& counts) const {
    if (counts.forwards != shape_.num_microbatches) {
      return base::Error(fmt::format("Got {} F microbatches for stage {}, expected {}", counts.forwards, stage,
                                     shape_.num_microbatches));
    }
    if (counts.inputs != counts.weights) {
      return base::Error(
          fmt::format("Invalid backward microbatches for stage {}: I and W must have equal counts, but got "
                      "I={}, W={}",
                      stage, counts.inputs, counts.weights));
    }
    if (counts.full_backwards + counts.inputs != shape_.num_microbatches) {
      return base::Error(
          fmt::format("Invalid backward microbatches for stage {}: expected {} total backwards, but got B={}, "
                      "I={}, W={}",
                      stage, shape_.num_microbatches, counts.full_backwards, counts.inputs, counts.weights));
    }
    return {};
  }

  const PipelineOrder& order_;
  const PipelineShape& shape_;
  OrderFormat format_;
  StageRanks ranks_;
  std::vector<StageCounts> counts_;
  std::unordered_set<ActionKey> seen_;
  size_t rank_ = 0, step_ = 0;
};

class CommunicationValidator {
 public:
  CommunicationValidator(const PipelineOrder& order, const StageRanks& stage_ranks)
      : order_(order), stage_ranks_(stage_ranks), received_(order.size()) {}

  base::Result<void> validate() {
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      for (size_t step = 0; step < order_[rank].size(); ++step) {
        if (auto fine = check(rank, step); !fine) return fine;
      }
    }
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      if (auto fine = compare_messages(rank); !fine) return fine;
      if (auto fine = check_parameters(rank); !fine) return fine;
    }
    return {};
  }

 private:
  struct Message {
    Action action;
    size_t step;
  };
  using Messages = std::vector<std::vector<Message>>;  // by peer

  base::Result<void> check(size_t rank, size_t step) {
    const Action& action = order_[rank][step];
    if (!is_send(action.kind) && !is_receive(action.kind)) return {};
    const Action other = counterpart(action);
    const int num_stages = static_cast<int>(stage_ranks_.size());
    if (other.stage < 0 || other.stage >= num_stages) {
      return base::Error(
          fmt::format("Rank {}, step {}: {} has no stage at its other end", rank, step, text_of(action)));
    }
    const int peer = stage_ranks_[static_cast<size_t>(other.stage)];
    if (peer == static_cast<int>(rank)) {
      return base::Error(fmt::format("Rank {}, step {}: {} has stage {} at its other end, which is on the same rank",
                                     rank, step, text_of(action), other.stage));
    }
    if (is_receive(action.kind)) {
      if (received_[rank].empty()) received_[rank].resize(order_.size());
      received_[rank][static_cast<size_t>(peer)].push_back({action, step});
    }
    return {};
  }

  // Compares the messages that `rank` sends to each other rank with those that the other receives.
  base::Result<void> compare_messages(size_t rank) const {
    std::vector<size_t> counts(order_.size(), 0);
    for (size_t step = 0; step < order_[rank].size(); ++step) {
      const Action& send = order_[rank][step];
      if (!is_send(send.kind)) continue;
      const Action receive = counterpart(send);
      const auto peer = static_cast<size_t>(stage_ranks_[static_cast<size_t>(receive.stage)]);
      const size_t number = counts[peer]++;
      const auto* expected = message(peer, rank, number);
      if (!expected) {
        return base::Error(fmt::format("rank {} sends {} at step {}, but rank {} has no {} left for it", rank,
                                       text_of(send), step, peer, text_of(receive)));
      }
      if (expected->action == receive) continue;
      return base::Error(
          fmt::format("message {} from rank {} to rank {} is {} for its sender (step {}), but {} for its receiver "
                      "(step {}): both must have the same order",
                      number, rank, peer, text_of(send), step, text_of(expected->action), expected->step));
    }
    for (size_t peer = 0; peer < order_.size(); ++peer) {
      if (const auto* extra = message(peer, rank, counts[peer])) {
        return base::Error(fmt::format("rank {} waits at step {} for {}, but rank {} never sends it", peer, extra->step,
                                       text_of(extra->action), rank));
      }
    }
    return {};
  }

  const Message* message(size_t receiver, size_t sender, size_t number) const {
    if (received_[receiver].empty()) return nullptr;
    const auto& messages = received_[receiver][sender];
    return number < messages.size() ? &messages[number] : nullptr;
  }

  base::Result<void> check_parameters(size_t rank) const {
    std::unordered_set<int> sharded;  // stages that the list gathers at all
    for (const Action& action : order_[rank]) {
      if (action.kind == ActionKind::kUnshard) sharded.insert(action.stage);
    }
    std::unordered_set<int> gathered;
    for (size_t step = 0; step < order_[rank].size(); ++step) {
      const Action& action = order_[rank][step];
      const bool is_double = action.kind == ActionKind::kUnshard && !gathered.insert(action.stage).second;
      bool is_missing = action.kind == ActionKind::kReshard && gathered.erase(action.stage) == 0;
      if (is_compute(action.kind)) {
        for_each_part(action, [&](const Action& part) {
          is_missing = is_missing || (sharded.contains(part.stage) && !gathered.contains(part.stage));
        });
      }
      if (is_double || is_missing) {
        return base::Error(fmt::format("Rank {}, step {}: {}, but the stage's parameters are {}gathered there", rank,
                                       step, text_of(action), is_double ? "already " : "not "));
      }
    }
    return {};
  }

  const PipelineOrder& order_;
  const StageRanks& stage_ranks_;
  std::vector<Messages> received_;  // by receiver; empty if it receives nothing
};

}  // namespace

base::Result<StageRanks> validate_compute(const PipelineOrder& order, const PipelineShape& shape, OrderFormat format) {
  return ComputeValidator(order, shape, format).validate();
}

base::Result<void> validate_communication(const PipelineOrder& order, const StageRanks& stage_ranks) {
  return CommunicationValidator(order, stage_ranks).validate();
}

}  // namespace cohort::pipeline
