/// The stages of each rank.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Puts stage i on rank i % num_ranks.
StageRanks looped_stage_ranks(int num_ranks, int num_stages);
/// Puts stages up and down again: 0 1 2 2 1 0. Fails with Python's text unless num_stages is a multiple of num_ranks.
base::Result<StageRanks> v_stage_ranks(int num_ranks, int num_stages);
/// Returns the stages of a rank in ascending order.
std::vector<int> stages_of_rank(const StageRanks& stage_ranks, int rank);

}  // namespace cohort::pipeline
