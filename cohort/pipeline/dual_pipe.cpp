// DualPipeV (https://github.com/deepseek-ai/DualPipe), in its eight steps.
#include <deque>
#include <utility>

#include "cohort/pipeline/schedule_lists.h"

namespace cohort::pipeline {
namespace {

class DualPipe {
 public:
  DualPipe(const PipelineShape& shape, int rank)
      : num_ranks_(shape.num_ranks),
        rank_(rank),
        num_microbatches_(shape.num_microbatches),
        up_{rank},
        down_{shape.num_stages - 1 - rank} {}

  ActionList list() {
    const int num_hops = num_ranks_ - rank_ - 1;
    for (int i = 0; i < 2 * num_hops; ++i) forward(&up_);
    for (int i = 0; i < rank_ + 1; ++i) {
      forward(&up_);
      forward(&down_);
    }
    for (int i = 0; i < num_hops; ++i) {
      input(&down_);
      pending_weight();
      forward(&down_);
    }
    main_step();
    for (int i = 0; i < num_hops; ++i) {
      full_backward(&down_);
      overlap(&down_, &up_);
    }
    cool_down(num_hops);
    return std::move(list_);
  }

 private:
  struct Counts {
    int stage;
    int forwards = 0, backwards = 0;
  };
  void forward(Counts* counts) { list_.push_back({ActionKind::kForward, counts->stage, counts->forwards++}); }
  void full_backward(Counts* counts) {
    list_.push_back({ActionKind::kFullBackward, counts->stage, counts->backwards++});
  }
  void input(Counts* counts) {
    pending_.emplace_back(counts->stage, counts->backwards);
    list_.push_back({ActionKind::kBackwardInput, counts->stage, counts->backwards++});
  }
  void backward(Counts* counts, bool in_parts) { in_parts ? input(counts) : full_backward(counts); }
  void pending_weight() {
    if (pending_.empty()) return;
    list_.push_back({ActionKind::kBackwardWeight, pending_.front().first, pending_.front().second});
    pending_.pop_front();
  }
  void overlap(Counts* to_forward, Counts* to_backward) {
    Action action{ActionKind::kOverlap};
    action.parts = {{ActionKind::kForward, to_forward->stage, to_forward->forwards++},
                    {ActionKind::kFullBackward, to_backward->stage, to_backward->backwards++}};
    list_.push_back(std::move(action));
  }

  void main_step() {
    for (int i = 0; i < num_microbatches_ - 2 * num_ranks_ + rank_ + 1; ++i) {
      // The last rank's first two are not overlapped, because this makes its bubble smaller.
      if (i == 0 && rank_ == num_ranks_ - 1) {
        forward(&up_);
        full_backward(&down_);
      } else {
        overlap(&up_, &down_);
      }
      overlap(&down_, &up_);
    }
  }

  void cool_down(int num_hops) {
    const int num_pairs = rank_ + 1;
    bool in_parts = false;
    for (int i = 0; i < num_pairs; ++i) {
      const bool is_half = i == num_pairs / 2;
      in_parts = in_parts || (is_half && rank_ % 2 == 1);
      backward(&down_, in_parts);
      in_parts = in_parts || is_half;
      backward(&up_, in_parts);
    }
    for (int i = 0; i < num_hops; ++i) {
      pending_weight();
      backward(&up_, in_parts);
    }
    for (int i = 0; i < num_pairs; ++i) pending_weight();
  }

  int num_ranks_, rank_, num_microbatches_;
  Counts up_, down_;
  /// Stage and microbatch of weight gradients that must still be computed.
  std::deque<std::pair<int, int>> pending_;
  ActionList list_;
};

}  // namespace

ActionList dual_pipe_list(const PipelineShape& shape, int rank) { return DualPipe(shape, rank).list(); }

}  // namespace cohort::pipeline
