// Interleaved1F1B and InterleavedZeroBubble. A rank's forwards and backwards are numbered from 0, each kind in the order in which
// it runs. In a round the first of the rank's stages runs some microbatches, then the second one runs the same, and so on.
#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "cohort/pipeline/schedule_lists.h"

namespace cohort::pipeline {
namespace {

class Interleaving {
 public:
  Interleaving(const PipelineShape& shape, int rank, bool has_parts)
      : num_ranks_(shape.num_ranks),
        num_local_(shape.num_stages / shape.num_ranks),
        rank_(rank),
        has_parts_(has_parts),
        per_round_(shape.num_microbatches / std::max(1, shape.num_microbatches / shape.num_ranks)),
        num_of_each_(num_local_ * shape.num_microbatches),
        forwards_(static_cast<size_t>(num_local_)),
        backwards_(forwards_),
        weights_(forwards_) {
    const int num_per_hop = has_parts ? 1 : 2;
    const int wanted = (num_local_ - 1) * per_round_ + num_per_hop * (num_ranks_ - 1 - rank);
    num_warmup_ = std::min(wanted, num_of_each_);
  }

  ActionList list() {
    add_idle(&list_, rank_);
    for (int i = 0; i < num_warmup_; ++i) add_forward(i);
    if (num_warmup_ > 0) add_idle(&list_, num_idle_after_warmup());
    for (int i = 0; i < num_of_each_; ++i) {
      const bool has_forward = num_warmup_ + i < num_of_each_;
      if (has_forward) add_forward(num_warmup_ + i);
      if (!has_forward && !has_parts_) add_idle(&list_, 1);
      add_backward(i);
      if (has_parts_ && i >= rank_) add_weight(num_weights_++);
    }
    while (has_parts_ && num_weights_ < num_of_each_) add_weight(num_weights_++);
    return std::move(list_);
  }

 private:
  int num_idle_after_warmup() const {
    const int num_hops = num_ranks_ - 1 - rank_;
    return has_parts_ ? num_hops : num_local_ * num_ranks_ + 2 * num_hops - (num_warmup_ + rank_);
  }
  int forward_place(int number) const { return number / per_round_ % num_local_; }
  int backward_place(int number) const { return num_local_ - 1 - forward_place(number); }

  // `counts` has the next microbatch of each of the rank's stages.
  void add(ActionKind kind, int place, std::vector<int>* counts) {
    const int microbatch = (*counts)[static_cast<size_t>(place)]++;
    list_.push_back({kind, place * num_ranks_ + rank_, microbatch});
  }
  void add_forward(int number) { add(ActionKind::kForward, forward_place(number), &forwards_); }
  void add_backward(int number) {
    add(has_parts_ ? ActionKind::kBackwardInput : ActionKind::kFullBackward, backward_place(number), &backwards_);
  }
  void add_weight(int number) { add(ActionKind::kBackwardWeight, backward_place(number), &weights_); }

  int num_ranks_, num_local_, rank_;
  bool has_parts_;
  int per_round_;
  int num_of_each_;
  int num_warmup_ = 0;
  int num_weights_ = 0;
  std::vector<int> forwards_, backwards_, weights_;
  ActionList list_;
};

}  // namespace

ActionList interleaved_list(const PipelineShape& shape, int rank, bool has_parts) {
  return Interleaving(shape, rank, has_parts).list();
}

PipelineOrder with_bubbles(const PipelineOrder& order) {
  PipelineOrder result(order.size());
  std::vector<size_t> next(order.size(), 0);
  std::set<std::pair<int, int>> done;  // forwards: stage, microbatch
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    std::vector<std::pair<int, int>> done_now;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      if (next[rank] == order[rank].size()) continue;
      goes_on = true;
      const Action& action = order[rank][next[rank]];
      const bool is_forward = action.kind == ActionKind::kForward;
      const bool must_wait = is_forward && action.stage > 0 && !done.contains({action.stage - 1, action.microbatch});
      result[rank].push_back(must_wait ? Action() : action);
      if (must_wait) continue;
      ++next[rank];
      if (is_forward) done_now.emplace_back(action.stage, action.microbatch);
    }
    done.insert(done_now.begin(), done_now.end());
  }
  return result;
}

}  // namespace cohort::pipeline
