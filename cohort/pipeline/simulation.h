/// A dry run of all ranks' lists: whether they end, when each action runs, and how much of the ranks' time is lost.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"
#include "cohort/pipeline/validation.h"

namespace cohort::pipeline {

/// The time that a stage needs for a microbatch, in any unit. A full backward takes the time of both parts; communication takes
/// no time.
struct Costs {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  /// Factors by stage. Stages without a factor have 1.
  std::vector<double> stage_factors = {};
  /// Whether the first stage computes its whole backward in the second part, as runtimes do, because no rank needs the gradients
  /// of its inputs. If false, its backward has two parts as on other stages, as papers count it.
  bool is_first_stage_in_one_part = false;
};

struct TimedAction {
  Action action;  ///< a computation; parts of overlapped ones follow each other
  double begin = 0.0, end = 0.0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;
  /// The time from the begin of the first action to the end of the last.
  double duration = 0.0;

  /// The fraction of all ranks' time in which they wait: 0 to 1.
  double bubble() const;
};

/// Runs each rank's list in its order; an action waits for its input, which the previous stage computes or, with communication,
/// sends. Requires an order that validate_compute and, with communication, validate_communication accept.
///
/// Fails for lists that never end:
///     the schedule never ends: 3 of 8 actions can run
///       rank 0 waits at step 1 (0B0) for 1SEND_B0, which rank 1 has at step 3
///       rank 1 waits at step 0 (1F1) for 0SEND_F1, which rank 0 has at step 4
base::Result<Timeline> simulate(const PipelineOrder& order, const StageRanks& stage_ranks, OrderFormat format,
                                const Costs& costs = {});

}  // namespace cohort::pipeline
