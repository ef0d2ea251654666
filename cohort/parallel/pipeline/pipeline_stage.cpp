#include "cohort/parallel/pipeline/pipeline_stage.h"

namespace cohort {

namespace pipeline::detail {

void throw_wrong_inputs(size_t expected, size_t actual) {
  C10_THROW_ERROR(ValueError, c10::str("[cohort] pipeline: the stage's forward takes ", expected,
                                       expected == 1 ? " tensor" : " tensors", ", but it was given ", actual,
                                       "\n  hint: pass as many tensors: the outputs of the stage before, or step()'s "
                                       "inputs, and then StepOptions::kwargs"));
}

}  // namespace pipeline::detail

namespace {

// Keeps only shapes and dtypes.
std::optional<TensorList> without_memory(const std::optional<TensorList>& examples) {
  if (!examples) return {};
  TensorList tensors;
  for (const at::Tensor& example : *examples) tensors.push_back(example.detach().to(c10::Device(c10::kMeta)));
  return tensors;
}

}  // namespace

PipelineStage::PipelineStage(std::shared_ptr<torch::nn::Module> module, pipeline::StageForward forward, int stage_index,
                             int num_stages, const PipelineStageOptions& options)
    : module_(std::move(module)),
      forward_(std::move(forward)),
      stage_index_(stage_index),
      num_stages_(num_stages),
      group_(options.group),
      input_args_(without_memory(options.input_args)),
      output_args_(without_memory(options.output_args)) {
  TORCH_CHECK_VALUE(module_, "[cohort] pipeline: a stage needs a module");
  TORCH_CHECK_VALUE(stage_index >= 0 && stage_index < num_stages, "Stage index ", stage_index, " is out of range of ",
                    num_stages);
  if (group_ || is_initialized()) {
    const Group ranks = group_ ? group_ : default_group();
    group_rank_ = ranks->getRank();
    group_size_ = ranks->getSize();
  }
  TORCH_CHECK(group_size_ <= num_stages, "Pipeline group size ", group_size_,
              " cannot be larger than number of stages ", num_stages);
  if (options.device) {
    device_ = *options.device;
  } else if (const auto parameters = module_->parameters(); !parameters.empty()) {
    device_ = parameters.front().device();
  }
}

}  // namespace cohort
