// The simple schedules: GPipe, 1F1B, LoopedBFS.
#include "cohort/pipeline/schedule_lists.h"

namespace cohort::pipeline {

ActionList gpipe_list(const PipelineShape& shape, int rank) {
  ActionList list;
  add_idle(&list, rank);
  for (int i = 0; i < shape.num_microbatches; ++i) list.push_back({ActionKind::kForward, rank, i});
  add_idle(&list, 3 * (shape.num_ranks - 1 - rank));
  for (int i = 0; i < shape.num_microbatches; ++i) list.push_back({ActionKind::kFullBackward, rank, i});
  return list;
}

ActionList one_forward_one_backward_list(const PipelineShape& shape, int rank) {
  ActionList list;
  const int num_hops = shape.num_ranks - 1 - rank;
  int forward = 0, backward = 0;
  add_idle(&list, rank);
  while (forward < num_hops) list.push_back({ActionKind::kForward, rank, forward++});
  add_idle(&list, 2 * num_hops);
  while (forward < shape.num_microbatches) {
    list.push_back({ActionKind::kForward, rank, forward++});
    list.push_back({ActionKind::kFullBackward, rank, backward++});
  }
  while (backward < shape.num_microbatches) {
    add_idle(&list, 1);
    list.push_back({ActionKind::kFullBackward, rank, backward++});
  }
  return list;
}

ActionList looped_list(const PipelineShape& shape, int rank) {
  ActionList list;
  add_idle(&list, rank);
  for (int stage = rank; stage < shape.num_stages; stage += shape.num_ranks) {
    for (int i = 0; i < shape.num_microbatches; ++i) list.push_back({ActionKind::kForward, stage, i});
  }
  add_idle(&list, 2 * (shape.num_ranks - 1 - rank));
  for (int stage = shape.num_stages - shape.num_ranks + rank; stage >= 0; stage -= shape.num_ranks) {
    for (int i = shape.num_microbatches; i-- > 0;) list.push_back({ActionKind::kFullBackward, stage, i});
  }
  return list;
}

}  // namespace cohort::pipeline
