/// Schedules: in which order the ranks of a pipeline compute. Each gives lists of what is computed, with idle steps as Python
/// draws them; lowering.h adds communication.
///
/// The lists equal those of torch/distributed/pipelining/schedules.py, but for 1F1B's last stage: Python draws its forwards with
/// numbers that are one too high (and runs them right).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

enum class ScheduleKind : uint8_t {
  /// All forwards, then all backwards. One stage per rank.
  kGPipe,
  /// One forward, one backward, as soon as the last stage has something to go back from. One stage per rank.
  k1F1B,
  /// The same with several stages per rank, stage i on rank i % ranks: microbatches go deep first.
  kInterleaved1F1B,
  /// GPipe with several stages per rank.
  kLoopedBFS,
  /// Interleaved1F1B with backwards in two parts, whose second one fills gaps (ZB1P).
  kInterleavedZeroBubble,
  /// Two stages per rank, which form a V: the rank with the first stage has the last one, too. Backwards in two parts.
  kZBVZeroBubble,
  /// The same, and forward and backward of different microbatches as one action, which an engine may overlap.
  kDualPipeV,
};

struct PipelineShape {
  int num_ranks = 1;
  int num_stages = 1;
  int num_microbatches = 1;
};

/// By Python's names, in any case. Fails for others with those there are.
base::Result<ScheduleKind> schedule_by_name(std::string_view name);
std::string schedule_name(ScheduleKind kind);
std::vector<std::string> schedule_names();

/// Fails for shapes that a schedule cannot have, in Python's words where Python has some.
base::Result<PipelineOrder> plan_schedule(ScheduleKind kind, const PipelineShape& shape);
/// Which rank has which stage in a schedule of this kind. Fails as plan_schedule.
base::Result<StageRanks> stage_ranks_of(ScheduleKind kind, const PipelineShape& shape);

}  // namespace cohort::pipeline
