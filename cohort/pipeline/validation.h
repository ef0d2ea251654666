/// Checks whether lists are complete and consistent. simulation.h checks whether they end.
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"
#include "cohort/pipeline/schedules.h"

namespace cohort::pipeline {

/// The content of a list: only computations, or communication, too.
enum class OrderFormat : uint8_t { kComputeOnly, kComputeComms };

/// Checks that every stage computes each microbatch once, forward before backward, on one rank, and that kComputeOnly has no
/// other actions. Returns the rank of each stage. Fails with Python's texts (_validate_schedule) if Python has them.
base::Result<StageRanks> validate_compute(const PipelineOrder& order, const PipelineShape& shape, OrderFormat format);

/// Checks lists that validate_compute accepts: each pair of ranks must send and receive the same messages in the same order, no
/// message may go to a stage on the same rank, and stages may only compute while their parameters are gathered.
base::Result<void> validate_communication(const PipelineOrder& order, const StageRanks& stage_ranks);

}  // namespace cohort::pipeline
