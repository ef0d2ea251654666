// ZBVZeroBubble: each rank has one stage on the way up and one on the way down.
#include <algorithm>
#include <utility>

#include "cohort/pipeline/schedule_lists.h"

namespace cohort::pipeline {
namespace {

class ZeroBubbleV {
 public:
  // If there are fewer microbatches than fill the pipeline, the list is planned for that many, and those that do not exist are
  // left out.
  ZeroBubbleV(const PipelineShape& shape, int rank)
      : num_ranks_(shape.num_ranks),
        rank_(rank),
        num_microbatches_(std::max(2 * shape.num_ranks - 1, shape.num_microbatches)),
        up_{rank},
        down_{shape.num_stages - 1 - rank} {}

  ActionList list() {
    add_idle(&list_, rank_);
    warm_up();
    while (down_.forwards < up_.forwards || up_.forwards < num_microbatches_) {
      if (up_.forwards < num_microbatches_) forward(&up_);
      backward(&up_);
      forward(&down_);
      backward(&down_);
    }
    cool_down();
    return std::move(list_);
  }

 private:
  struct Counts {
    int stage;
    int forwards = 0, inputs = 0, weights = 0;
  };
  void forward(Counts* counts) { list_.push_back({ActionKind::kForward, counts->stage, counts->forwards++}); }
  void input(Counts* counts) { list_.push_back({ActionKind::kBackwardInput, counts->stage, counts->inputs++}); }
  void weight(Counts* counts) { list_.push_back({ActionKind::kBackwardWeight, counts->stage, counts->weights++}); }
  void backward(Counts* counts) {
    input(counts);
    weight(counts);
  }

  void warm_up() {
    for (int i = 0; i < 2 * (num_ranks_ - rank_) - 1; ++i) forward(&up_);
    for (int i = 0; i < rank_; ++i) {
      forward(&down_);
      forward(&up_);
    }
    for (int i = 0; i < num_ranks_ - rank_; ++i) {
      forward(&down_);
      backward(&down_);
    }
  }

  void cool_down() {
    for (int i = 0; i < rank_; ++i) {
      input(&up_);
      input(&down_);
    }
    for (int i = 0; i < num_ranks_ - rank_; ++i) backward(&up_);
    while (down_.weights < down_.inputs) weight(&down_);
    while (up_.weights < up_.inputs) weight(&up_);
  }

  int num_ranks_, rank_, num_microbatches_;
  Counts up_, down_;
  ActionList list_;
};

}  // namespace

ActionList zero_bubble_v_list(const PipelineShape& shape, int rank) {
  ActionList list = ZeroBubbleV(shape, rank).list();
  for (Action& action : list) {
    if (action.microbatch >= shape.num_microbatches) action = Action();
  }
  return list;
}

}  // namespace cohort::pipeline
