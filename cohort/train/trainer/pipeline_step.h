/// pipeline_step, pipeline_evaluation, pipeline_prediction: `step`, `evaluate` and `predict` of a task whose model is a stage of
/// a pipeline.
///
///     struct Classify {
///       Stage model;                              // this rank's, DTensors and fully_shard included
///       cohort::PipelineSchedule* pipeline;       // of it, with the loss
///       cohort::optim::AdamW* optimizer;
///       StepOutput step(StageImpl&, Batch& batch) { return pipeline_step(*pipeline, batch.first, batch.second); }
///       StepOutput evaluate(StageImpl&, Batch& batch) {
///         return pipeline_evaluation(*pipeline, batch.first, batch.second, cross_entropy, /*num_rows=*/32);
///       }
///     };
///
/// Every rank of a pipeline reads the same batch, of which the first one uses the input and the last one the target. Collective
/// over the pipeline. What the loss throws on the last rank, all ranks throw. Thread-safety: as PipelineSchedule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "cohort/export.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/trainer/task.h"

namespace cohort::train {

/// Forward and backward. The loss is the mean of the microbatches', on all ranks; there is no output. Losses that are means weigh
/// microbatches alike: where these differ in their numbers of rows, or of labels that count (ignore_index), neither the loss nor
/// the gradients are the whole batch's, as pipeline_evaluation's loss is. What is right there is PipelineSchedule::step() of a
/// schedule without scale_grads, with losses that are sums divided by the whole batch's number.
COHORT_API StepOutput pipeline_step(PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target);

/// Forward. The loss is that of the whole batch, on all ranks; the last one has output and target, too. A batch of fewer rows
/// than `num_rows`, such as the last one of an epoch, is filled up with its first row, for the pipeline to see batches of one
/// size.
COHORT_API StepOutput pipeline_evaluation(
    PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target,
    const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>& loss, int64_t num_rows);

/// Forward, for a task's `predict`: the output for a batch, filled up in the same way, on the rank with the last stage; undefined
/// elsewhere.
COHORT_API at::Tensor pipeline_prediction(PipelineSchedule& pipeline, const at::Tensor& input, int64_t num_rows);

}  // namespace cohort::train
