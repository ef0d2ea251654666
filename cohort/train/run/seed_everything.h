/// seed_everything: seeds LibTorch's generators on the CPU and on all accelerators.
#pragma once

#include <cstdint>

#include "cohort/export.h"

namespace cohort::train {

/// Call it with the same seed on all ranks before models are made: with "fsdp" each rank's shards begin with its own values.
/// TrainerOptions::seed seeds each rank with its own number, seed + rank, when the Trainer is constructed. Returns `seed`. Throws
/// c10::ValueError for a negative number.
COHORT_API int64_t seed_everything(int64_t seed);

}  // namespace cohort::train
