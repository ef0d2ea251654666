/// Which rank has which stages.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

/// Stage i on rank i % num_ranks.
StageRanks looped_stage_ranks(int num_ranks, int num_stages);
/// Up and down again: 0 1 2 2 1 0. Fails, in Python's words, unless num_stages is a multiple of num_ranks.
base::Result<StageRanks> v_stage_ranks(int num_ranks, int num_stages);
/// What a rank has, in ascending order.
std::vector<int> stages_of_rank(const StageRanks& stage_ranks, int rank);

}  // namespace cohort::pipeline
