/// Learning-rate schedules as pure functions of the step, so that a resumed run needs no schedule state.
#pragma once

#include <cstdint>

#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort::train {

/// Rises in a straight line from 0 to `peak` over `warmup_steps`, then falls along half a cosine to `floor` at `total_steps`
/// and stays there.
struct WarmupCosine {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;

  /// Returns the rate for the step'th update, counted from 0; the first is peak / warmup_steps, not 0.
  COHORT_API double at(int64_t step) const;
};

/// Sets the rate of every parameter group.
COHORT_API void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace cohort::train
