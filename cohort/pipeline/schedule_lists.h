/// One rank's list in each schedule. schedules.cpp checks the shapes before.
#pragma once

#include "cohort/pipeline/action.h"
#include "cohort/pipeline/schedules.h"

namespace cohort::pipeline {

ActionList gpipe_list(const PipelineShape& shape, int rank);
ActionList one_forward_one_backward_list(const PipelineShape& shape, int rank);
ActionList looped_list(const PipelineShape& shape, int rank);
/// Interleaved1F1B; with `has_parts` InterleavedZeroBubble, whose backward has two parts.
ActionList interleaved_list(const PipelineShape& shape, int rank, bool has_parts);
ActionList zero_bubble_v_list(const PipelineShape& shape, int rank);
ActionList dual_pipe_list(const PipelineShape& shape, int rank);

/// Adds idle steps wherever a forward would run before the forward of the previous stage.
PipelineOrder with_bubbles(const PipelineOrder& order);

inline void add_idle(ActionList* list, int count) {
  if (count > 0) list->resize(list->size() + static_cast<size_t>(count));
}

}  // namespace cohort::pipeline
