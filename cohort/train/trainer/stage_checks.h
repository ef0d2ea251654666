/// What is looked at before a model in stages is trained, for errors that would show late, or never.
#pragma once

#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

/// Throws c10::ValueError for a stage that ranks with other data have, too, without anything that averages its gradients.
void check_gradients_are_averaged(const TrainerCore& core, const torch::nn::Module& stage);

}  // namespace cohort::train::detail
