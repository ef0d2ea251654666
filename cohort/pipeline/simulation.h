/// A dry run of all ranks' lists: whether they come to an end, when each action runs, and how much of the ranks' time is lost.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"
#include "cohort/pipeline/validation.h"

namespace cohort::pipeline {

/// What a stage takes for a microbatch, in any unit of time. A full backward takes both of its parts; communication takes
/// nothing.
struct Costs {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  /// By stage; those that are not there: 1.
  std::vector<double> stage_factors = {};
  /// The first stage has no inputs whose gradients anybody waits for, so runtimes do all of its backward in the second part.
  /// False: it has two as the others have, as papers count.
  bool is_first_stage_in_one_part = false;
};

struct TimedAction {
  Action action;  ///< something that is computed; parts of overlapped ones one after the other
  double begin = 0.0, end = 0.0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;
  /// From the first action's begin to the last one's end.
  double duration = 0.0;

  /// The part of all ranks' time in which they wait: 0 to 1.
  double bubble() const;
};

/// Each rank runs its list in its order; an action waits for its input, which is computed by the stage before or, with
/// communication, sent by it. Requires: validate_compute and, with communication, validate_communication accept the order.
///
/// Fails for lists that never come to an end:
///     the schedule never ends: 3 of 8 actions can run
///       rank 0 waits at step 1 (0B0) for 1SEND_B0, which rank 1 has at step 3
///       rank 1 waits at step 0 (1F1) for 0SEND_F1, which rank 0 has at step 4
base::Result<Timeline> simulate(const PipelineOrder& order, const StageRanks& stage_ranks, OrderFormat format,
                                const Costs& costs = {});

}  // namespace cohort::pipeline
