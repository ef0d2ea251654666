/// Whether lists are complete and consistent. Whether they come to an end: simulation.h.
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"
#include "cohort/pipeline/schedules.h"

namespace cohort::pipeline {

/// What a list holds: what is computed alone, or communication, too.
enum class OrderFormat : uint8_t { kComputeOnly, kComputeComms };

/// Whether every stage computes each microbatch once, forward before backward, on one rank, and kComputeOnly has nothing else.
/// Returns which rank has which stage. Fails in Python's words (_validate_schedule) where Python has some.
base::Result<StageRanks> validate_compute(const PipelineOrder& order, const PipelineShape& shape, OrderFormat format);

/// Of lists that validate_compute accepts: whether what is sent and what is received are the same, between each pair of ranks in
/// the same order, whether nothing is sent to where it is; and whether stages compute while their parameters are there.
base::Result<void> validate_communication(const PipelineOrder& order, const StageRanks& stage_ranks);

}  // namespace cohort::pipeline
