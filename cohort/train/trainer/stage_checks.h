/// Checks before a model in stages is trained, for errors that would show late or never.
#pragma once

#include <cstdint>

#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

/// Throws c10::ValueError if other ranks have the same stage with other data, and nothing averages its gradients.
void check_gradients_are_averaged(const TrainerCore& core, const torch::nn::Module& stage);

/// Throws c10::ValueError for a task with a pipeline that has only `step`.
void check_can_evaluate(const ErasedTask& task);

/// Throws c10::ValueError if the epoch that begins, of `num_batches`, ends with a smaller batch that the pipeline cannot take.
/// Collective.
void check_last_batch(const TrainerCore& core, const PipelineSchedule& pipeline, const BatchFeed& feed,
                      int64_t num_batches);

}  // namespace cohort::train::detail
