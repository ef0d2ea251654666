#include "cohort/pipeline/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/pipeline/action_key.h"
#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {
namespace {

constexpr int kMostWaitsInText = 8;

// One of these actions must have run.
using Need = std::vector<ActionKey>;

class Simulation {
 public:
  Simulation(const PipelineOrder& order, const StageRanks& stage_ranks, OrderFormat format, const Costs& costs)
      : order_(order),
        stage_ranks_(stage_ranks),
        format_(format),
        costs_(costs),
        next_(order.size(), 0),
        clocks_(order.size(), 0.0) {
    timeline_.ranks.resize(order.size());
  }

  base::Result<Timeline> run() {
    for (size_t rank = 0; rank < order_.size(); ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const size_t rank = ready_.front();
      ready_.pop_front();
      advance(rank);
    }
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      if (next_[rank] < order_[rank].size()) return stuck();
      timeline_.duration = std::max(timeline_.duration, clocks_[rank]);
    }
    return std::move(timeline_);
  }

 private:
  bool is_local(int stage, int other) const {
    return stage_ranks_[static_cast<size_t>(stage)] == stage_ranks_[static_cast<size_t>(other)];
  }

  void add_input_needs(const Action& action, std::vector<Need>* needs) const {
    const bool is_forward = action.kind == ActionKind::kForward;
    const int source = is_forward ? action.stage - 1 : action.stage + 1;
    if (source < 0 || source >= static_cast<int>(stage_ranks_.size())) return;
    const int microbatch = action.microbatch;
    if (format_ == OrderFormat::kComputeComms && !is_local(source, action.stage)) {
      const auto receive = is_forward ? ActionKind::kReceiveForward : ActionKind::kReceiveBackward;
      needs->push_back({key_of(receive, action.stage, microbatch)});
      needs->push_back({key_of(counterpart({receive, action.stage, microbatch}))});
    } else if (is_forward) {
      needs->push_back({key_of(ActionKind::kForward, source, microbatch)});
    } else {
      needs->push_back({key_of(ActionKind::kFullBackward, source, microbatch),
                        key_of(ActionKind::kBackwardInput, source, microbatch)});
    }
  }

  std::vector<Need> needs_of(const Action& action) const {
    std::vector<Need> needs;
    const auto own = [&](ActionKind kind) { return key_of(kind, action.stage, action.microbatch); };
    switch (action.kind) {
      case ActionKind::kFullBackward:
      case ActionKind::kBackwardInput:
        needs.push_back({own(ActionKind::kForward)});
        [[fallthrough]];
      case ActionKind::kForward:
        add_input_needs(action, &needs);
        break;
      case ActionKind::kBackwardWeight:
        needs.push_back({own(ActionKind::kBackwardInput)});
        break;
      case ActionKind::kSendForward:
        needs.push_back({own(ActionKind::kForward)});
        break;
      case ActionKind::kSendBackward:
        needs.push_back({own(ActionKind::kFullBackward), own(ActionKind::kBackwardInput)});
        break;
      default:
        break;
    }
    return needs;
  }

  // The time when the first of them ended; nothing if none has run.
  std::optional<double> end_of(const Need& need) const {
    for (const ActionKey key : need) {
      if (const auto found = ends_.find(key); found != ends_.end()) return found->second;
    }
    return std::nullopt;
  }

  // Returns what the action still waits for; nothing if it can run.
  std::optional<Need> missing(const Action& action) const {
    std::vector<ActionKey> before;  // parts that run before
    std::optional<Need> result;
    for_each_part(action, [&](const Action& part) {
      for (const Need& need : needs_of(part)) {
        const bool is_before = std::find_first_of(need.begin(), need.end(), before.begin(), before.end()) != need.end();
        if (!result && !is_before && !end_of(need)) result = need;
      }
      before.push_back(key_of(part));
    });
    return result;
  }

  double cost_of(const Action& action) const {
    const auto stage = static_cast<size_t>(action.stage);
    const double factor = stage < costs_.stage_factors.size() ? costs_.stage_factors[stage] : 1.0;
    const bool is_in_one_part = costs_.is_first_stage_in_one_part && stage == 0;
    switch (action.kind) {
      case ActionKind::kForward:
        return factor * costs_.forward;
      case ActionKind::kBackwardInput:
        return is_in_one_part ? 0.0 : factor * costs_.backward_input;
      case ActionKind::kBackwardWeight:
        return factor * ((is_in_one_part ? costs_.backward_input : 0.0) + costs_.backward_weight);
      case ActionKind::kFullBackward:
        return factor * (costs_.backward_input + costs_.backward_weight);
      default:
        return 0.0;
    }
  }

  void execute(size_t rank, const Action& action) {
    double begin = clocks_[rank];
    // The end of a send is the time when its data was computed, and a send does not occupy its rank.
    for (const Need& need : needs_of(action)) begin = std::max(begin, *end_of(need));
    const double end = begin + cost_of(action);
    if (is_compute(action.kind)) {
      timeline_.ranks[rank].push_back({action, begin, end});
      clocks_[rank] = end;
    }
    const ActionKey key = key_of(action);
    ends_.emplace(key, end);
    const auto waiting = waiting_.find(key);
    if (waiting == waiting_.end()) return;
    ready_.insert(ready_.end(), waiting->second.begin(), waiting->second.end());
    waiting_.erase(waiting);
  }

  void advance(size_t rank) {
    for (; next_[rank] < order_[rank].size(); ++next_[rank]) {
      const Action& action = order_[rank][next_[rank]];
      if (action.kind == ActionKind::kIdle) continue;
      if (const auto need = missing(action)) {
        for (const ActionKey key : *need) waiting_[key].push_back(rank);
        return;
      }
      for_each_part(action, [&](const Action& part) { execute(rank, part); });
    }
  }

  std::string place_of(size_t waiting_rank, const Need& need) const {
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      for (size_t step = 0; step < order_[rank].size(); ++step) {
        bool is_here = false;
        for_each_part(order_[rank][step], [&](const Action& part) {
          is_here = is_here || std::find(need.begin(), need.end(), key_of(part)) != need.end();
        });
        if (!is_here) continue;
        const std::string what = text_of(order_[rank][step]);
        if (rank == waiting_rank) return fmt::format("{}, which comes later, at step {}", what, step);
        return fmt::format("{}, which rank {} has at step {}", what, rank, step);
      }
    }
    std::vector<std::string> names;
    for (const ActionKey key : need) names.push_back(text_of(action_of(key)));
    return base::join(names, " or ") + ", which no rank has";
  }

  base::Error stuck() const {
    size_t num_run = 0, num_actions = 0;
    int num_named = 0;
    std::string text;
    for (size_t rank = 0; rank < order_.size(); ++rank) {
      num_run += next_[rank];
      num_actions += order_[rank].size();
      if (next_[rank] == order_[rank].size() || ++num_named > kMostWaitsInText) continue;
      const Action& action = order_[rank][next_[rank]];
      text += fmt::format("\n  rank {} waits at step {} ({}) for {}", rank, next_[rank], text_of(action),
                          place_of(rank, *missing(action)));
    }
    if (num_named > kMostWaitsInText) text += fmt::format("\n  and {} more ranks wait", num_named - kMostWaitsInText);
    return base::Error(fmt::format("the schedule never ends: {} of {} actions can run{}", num_run, num_actions, text));
  }

  const PipelineOrder& order_;
  const StageRanks& stage_ranks_;
  OrderFormat format_;
  const Costs& costs_;
  std::vector<size_t> next_;
  std::vector<double> clocks_;
  std::unordered_map<ActionKey, double> ends_;
  std::unordered_map<ActionKey, std::vector<size_t>> waiting_;
  std::deque<size_t> ready_;
  Timeline timeline_;
};

}  // namespace

double Timeline::bubble() const {
  double busy = 0.0;
  for (const auto& list : ranks) {
    for (const TimedAction& action : list) busy += action.end - action.begin;
  }
  const double available = duration * static_cast<double>(ranks.size());
  return available > 0.0 ? 1.0 - busy / available : 0.0;
}

base::Result<Timeline> simulate(const PipelineOrder& order, const StageRanks& stage_ranks, OrderFormat format,
                                const Costs& costs) {
  return Simulation(order, stage_ranks, format, costs).run();
}

}  // namespace cohort::pipeline
