// Options of a Trainer in a worker of several ranks.
#pragma once

#include <utility>

#include "cohort/train/strategy/trainer_options.h"
#include "tests/support/rank_threads.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train::test {

inline TrainerOptions of_ranks(TrainerOptions options) {
  options.strategy.backend = cohort::test::backend_of_tests();
  return quiet(std::move(options));
}

}  // namespace cohort::train::test
