/// pipeline_step, pipeline_evaluation, pipeline_prediction: `step`, `evaluate` and `predict` of a task whose model is a stage of
/// a pipeline.
///
///     struct Classify {
///       Stage model;                              // of this rank; may have DTensors or be wrapped in fully_shard
///       cohort::PipelineSchedule* pipeline;       // of this stage, with the loss
///       cohort::optim::AdamW* optimizer;
///       StepOutput step(StageImpl&, Batch& batch) { return pipeline_step(*pipeline, batch.first, batch.second); }
///       StepOutput evaluate(StageImpl&, Batch& batch) {
///         return pipeline_evaluation(*pipeline, batch.first, batch.second, cross_entropy, /*num_rows=*/32);
///       }
///     };
///
/// Every rank of a pipeline reads the same batch; the first rank uses the input and the last one the target. Collective over the
/// pipeline. If the loss throws on the last rank, all ranks throw the same. Thread-safety: as PipelineSchedule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "cohort/export.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/train/strategy/task.h"

namespace cohort::train {

/// Runs forward and backward. Returns the mean of the microbatches' losses on all ranks, without an output. If the loss is a
/// mean, every microbatch has the same weight: if microbatches differ in their number of rows, or of labels that count
/// (ignore_index), the loss and the gradients are not those of the whole batch; pipeline_evaluation's loss is. In this case use
/// PipelineSchedule::step() of a schedule without scale_grads, with losses that are sums divided by the number of the whole
/// batch.
COHORT_API StepOutput pipeline_step(PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target);

/// Runs forward. Returns the loss of the whole batch on all ranks, and output and target on the last rank. A batch with fewer
/// rows than `num_rows`, such as the last one of an epoch, is filled up with copies of its first row, so that the pipeline gets
/// batches of one size.
COHORT_API StepOutput pipeline_evaluation(
    PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target,
    const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>& loss, int64_t num_rows);

/// Runs forward, for a task's `predict`. Returns the output for a batch, filled up in the same way, on the rank with the last
/// stage; undefined elsewhere.
COHORT_API at::Tensor pipeline_prediction(PipelineSchedule& pipeline, const at::Tensor& input, int64_t num_rows);

}  // namespace cohort::train
