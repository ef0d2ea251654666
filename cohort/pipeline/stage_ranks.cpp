#include "cohort/pipeline/stage_ranks.h"

#include <fmt/format.h>

namespace cohort::pipeline {

StageRanks looped_stage_ranks(int num_ranks, int num_stages) {
  StageRanks stage_ranks;
  for (int stage = 0; stage < num_stages; ++stage) stage_ranks.push_back(stage % num_ranks);
  return stage_ranks;
}

base::Result<StageRanks> v_stage_ranks(int num_ranks, int num_stages) {
  if (num_stages % num_ranks) {
    return base::Error(
        fmt::format("num_stages {} must be evenly divisible by pp_size {} for V schedules", num_stages, num_ranks));
  }
  StageRanks stage_ranks;
  for (int stage = 0; stage < num_stages; ++stage) {
    const int place = stage % num_ranks;
    const bool goes_up = stage / num_ranks % 2 == 0;
    stage_ranks.push_back(goes_up ? place : num_ranks - 1 - place);
  }
  return stage_ranks;
}

std::vector<int> stages_of_rank(const StageRanks& stage_ranks, int rank) {
  std::vector<int> stages;
  for (size_t stage = 0; stage < stage_ranks.size(); ++stage) {
    if (stage_ranks[stage] == rank) stages.push_back(static_cast<int>(stage));
  }
  return stages;
}

}  // namespace cohort::pipeline
