/// The seed of a stress test: a new one, which it prints, or that of an earlier run from COHORT_STRESS_SEED.
#pragma once

#include <iostream>
#include <random>

#include "cohort/base/system/env.h"

namespace cohort::shm {

inline unsigned stress_seed() {
  const auto given = base::env_int("COHORT_STRESS_SEED").value();
  const auto seed = given ? static_cast<unsigned>(*given) : std::random_device()();
  std::cout << "COHORT_STRESS_SEED=" << seed << "\n" << std::flush;
  return seed;
}

}  // namespace cohort::shm
