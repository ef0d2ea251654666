#include "cohort/parallel/pipeline/stage_run.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/optim/tensors.h"
#include "cohort/parallel/pipeline/extra_inputs.h"

namespace cohort::pipeline {

StageRun::StageRun(const PipelineStage& stage, int num_microbatches)
    : stage_(stage),
      microbatches_(static_cast<size_t>(num_microbatches)),
      parameters_(optim::each_once(stage.module()->parameters())) {
  for (const auto& module : stage_.module()->modules()) {
    if (auto* const replicated = dynamic_cast<ddp::Replicated*>(module.get())) {
      replicas_.push_back(&replicated->replica());
    }
    if (auto* const sharded = dynamic_cast<fsdp::ShardedModule*>(module.get())) sharded_modules_.push_back(sharded);
  }
}

StageRun::~StageRun() = default;

void StageRun::begin(bool has_backward, bool requires_gradient_sync) {
  for (Microbatch& each : microbatches_) each = {};
  num_backwards_ = 0;
  has_backward_ = has_backward;
  requires_gradient_sync_ = requires_gradient_sync;
  is_reduced_ = false;
  for (ddp::Replica* const replica : replicas_) no_syncs_.push_back(std::make_unique<ddp::NoSync>(*replica));
  for (fsdp::ShardedModule* const sharded : sharded_modules_) {
    sharded->set_requires_gradient_sync(false);
    sharded->set_is_last_backward(false);
    sharded->set_reshard_after_backward(false);
  }
}

void StageRun::end() {
  for (Microbatch& each : microbatches_) each = {};
  no_syncs_.clear();
  for (fsdp::ShardedModule* const sharded : sharded_modules_) {
    sharded->set_requires_gradient_sync(true);
    sharded->set_is_last_backward(true);
    sharded->set_reshard_after_backward(true);
  }
}

void StageRun::forward(int microbatch, const TensorList& inputs, const std::vector<bool>& require_grad,
                       const TensorList& kwargs) {
  TensorList leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor input = inputs[i].to(stage_.device());
    if (!stage_.is_first()) {
      input = input.detach();
      if (has_backward_ && i < require_grad.size() && require_grad[i]) input.requires_grad_(true);
    }
    leaves.push_back(std::move(input));
  }
  Microbatch& state = at(microbatch);
  TensorList arguments = leaves;
  for (const at::Tensor& each : kwargs) arguments.push_back(extra_input_on(stage_.device(), each));
  state.outputs = stage_.forward(arguments);
  if (has_backward_) state.inputs = std::move(leaves);
}

TensorList StageRun::roots(const Microbatch& microbatch) const {
  return microbatch.loss.defined() ? TensorList{microbatch.loss} : microbatch.outputs;
}

void StageRun::run_full(Microbatch& microbatch) {
  if (num_backwards_ == static_cast<int>(microbatches_.size())) synchronize_last(microbatch.outputs);
  auto grads = full_backward(roots(microbatch), microbatch.output_grads, microbatch.inputs);
  if (!stage_.is_first()) microbatch.input_grads = std::move(grads);
  microbatch.inputs.clear();
  microbatch.outputs.clear();
  microbatch.loss.reset();
  microbatch.output_grads.clear();
}

// Called before the last backward, so that it reduces the gradients that all have accumulated.
void StageRun::synchronize_last(const TensorList& outputs) {
  if (!requires_gradient_sync_) return;
  for (ddp::Replica* const replica : replicas_) replica->reducer().prepare(outputs);
  for (fsdp::ShardedModule* const sharded : sharded_modules_) {
    sharded->set_requires_gradient_sync(true);
    sharded->set_is_last_backward(true);
  }
  is_reduced_ = true;
}

void StageRun::backward(int microbatch, const TensorList& output_grads, bool in_parts) {
  Microbatch& state = at(microbatch);
  for (const at::Tensor& grad : output_grads) {
    state.output_grads.push_back(grad.defined() ? grad.to(stage_.device()) : grad);
  }
  if (!in_parts) {
    ++num_backwards_;
    return run_full(state);
  }
  // Nobody waits for gradients of the first stage's inputs: the second part does everything.
  if (stage_.is_first()) return;
  state.weight_part.emplace();
  state.input_grads = backward_input(roots(state), state.output_grads, state.inputs, parameters_, &*state.weight_part);
  state.inputs.clear();
  state.outputs.clear();
  state.loss.reset();
  state.output_grads.clear();
}

void StageRun::backward_weight(int microbatch) {
  Microbatch& state = at(microbatch);
  ++num_backwards_;
  if (!state.weight_part) return run_full(state);
  pipeline::backward_weight(std::move(*state.weight_part));
  state.weight_part.reset();
}

void StageRun::unshard() {
  for (auto* const module : sharded_modules_) module->unshard().wait();
}

void StageRun::reshard() {
  for (auto* const module : sharded_modules_) module->reshard();
}

void StageRun::reduce_grad() {
  const bool is_complete = num_backwards_ == static_cast<int>(microbatches_.size());
  if (is_reduced_ || !requires_gradient_sync_ || !is_complete || (sharded_modules_.empty() && replicas_.empty()))
    return;
  // The last gradients came without a backward pass that wrappers could follow: run one that adds zeros.
  TensorList empty;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) empty.push_back(parameter.reshape(-1).slice(0, 0, 0).sum());
  }
  synchronize_last({});
  torch::autograd::backward(empty);
}

void StageRun::complete() {
  const bool is_left = has_backward_ && requires_gradient_sync_ && !is_reduced_;
  if (is_left) unshard();  // the list may have freed them
  if (is_left) reduce_grad();
  reshard();
}

bool StageRun::steps_optimizer() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](ddp::Replica* replica) { return replica->reducer().steps_optimizer(); });
}

}  // namespace cohort::pipeline
