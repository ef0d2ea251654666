/// Schedules: the order in which the ranks of a pipeline compute. Each gives lists of computations, with idle steps as Python
/// draws them; lowering.h adds communication.
///
/// The lists equal those of torch/distributed/pipelining/schedules.py, except for 1F1B's last stage: Python draws its forwards
/// with numbers that are one too high (and runs them correctly).
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
  /// One forward, one backward, as soon as the last stage can begin a backward. One stage per rank.
  k1F1B,
  /// 1F1B with several stages per rank, stage i on rank i % ranks; microbatches run depth first.
  kInterleaved1F1B,
  /// GPipe with several stages per rank.
  kLoopedBFS,
  /// Interleaved1F1B with backwards in two parts, of which the second fills gaps (ZB1P).
  kInterleavedZeroBubble,
  /// Two stages per rank, in the form of a V: the rank with the first stage also has the last one. Backwards in two parts.
  kZBVZeroBubble,
  /// ZBVZeroBubble with forward and backward of different microbatches as one action, which an engine may overlap.
  kDualPipeV,
};

struct PipelineShape {
  int num_ranks = 1;
  int num_stages = 1;
  int num_microbatches = 1;
};

/// Finds a schedule by Python's name, in upper or lower case. The error for other names lists those that exist.
base::Result<ScheduleKind> schedule_by_name(std::string_view name);
std::string schedule_name(ScheduleKind kind);
std::vector<std::string> schedule_names();

/// Plans the lists. Fails for shapes that the schedule does not support, with Python's text if Python has one.
base::Result<PipelineOrder> plan_schedule(ScheduleKind kind, const PipelineShape& shape);
/// Returns the rank of each stage in a schedule of this kind. Fails as plan_schedule does.
base::Result<StageRanks> stage_ranks_of(ScheduleKind kind, const PipelineShape& shape);

}  // namespace cohort::pipeline
