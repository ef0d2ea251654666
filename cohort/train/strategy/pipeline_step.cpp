#include "cohort/train/strategy/pipeline_step.h"

#include <ATen/ops/cat.h>

#include <vector>

namespace cohort::train {
namespace {

// Repeats the first row until the batch has `num_rows`, as all batches of evaluation do.
at::Tensor filled_up(const at::Tensor& input, int64_t num_rows) {
  const int64_t missing = num_rows - input.size(0);
  return missing > 0 ? at::cat({input, input.narrow(0, 0, 1).repeat_interleave(missing, 0)}) : input;
}

}  // namespace

StepOutput pipeline_step(PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target) {
  std::vector<at::Tensor> losses;
  pipeline.step({input}, {.target = target, .losses = &losses, .return_outputs = false});
  return {.loss = pipeline.mean_loss(losses)};
}

StepOutput pipeline_evaluation(
    PipelineSchedule& pipeline, const at::Tensor& input, const at::Tensor& target,
    const std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>& loss, int64_t num_rows) {
  const TensorList outputs = pipeline.eval({filled_up(input, num_rows)});
  at::Tensor output;
  const at::Tensor mean = pipeline.mean_loss([&] {
    output = outputs.front().narrow(0, 0, input.size(0));
    return std::vector{loss(output, target)};
  });
  return {.loss = mean, .output = output, .target = output.defined() ? target : at::Tensor()};
}

at::Tensor pipeline_prediction(PipelineSchedule& pipeline, const at::Tensor& input, int64_t num_rows) {
  const TensorList outputs = pipeline.eval({filled_up(input, num_rows)});
  return outputs.empty() ? at::Tensor() : outputs.front().slice(0, 0, input.size(0));
}

}  // namespace cohort::train
