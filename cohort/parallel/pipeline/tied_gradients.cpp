// What a step does with gradients when all backwards have run.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <unordered_set>

#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/pipeline/pipeline_runtime.h"

namespace cohort::pipeline {
namespace {

at::Tensor gradient_or_zeros(const at::Tensor& parameter) {
  return parameter.grad().defined() ? parameter.grad().contiguous() : at::zeros_like(parameter);
}

TensorList trained_parameters(const PipelineStage& stage) {
  const auto* const sharded = dynamic_cast<const fsdp::ShardedModule*>(stage.module().get());
  return sharded ? sharded->named_shards(/*recurse=*/true).values() : stage.module()->parameters();
}

}  // namespace

// The stage with the lower number gives its value.
void PipelineRuntime::share_tied_values() {
  const at::NoGradGuard no_grad;
  for (const TiedParameter& tied : options_.tied_parameters) {
    if (is_local(tied.other_stage)) continue;
    const PointToPointOptions in_group{.group = group_};
    if (tied.stage < tied.other_stage) {
      isend(tied.parameter.contiguous(), group_rank(rank_of(tied.other_stage)), in_group)->wait();
    } else {
      const at::Tensor value = at::empty_like(tied.parameter, at::MemoryFormat::Contiguous);
      irecv(value, group_rank(rank_of(tied.other_stage)), in_group)->wait();
      at::Tensor(tied.parameter).copy_(value);
    }
  }
}

// Both ranks add up the same two numbers in the same order.
void PipelineRuntime::add_tied_gradients() {
  const at::NoGradGuard no_grad;
  for (const TiedParameter& tied : options_.tied_parameters) {
    if (is_local(tied.other_stage)) continue;  // one tensor, which has both gradients already
    const at::Tensor own = gradient_or_zeros(tied.parameter);
    const at::Tensor other = at::empty_like(own);
    const auto peer = group_rank(rank_of(tied.other_stage));
    const auto works =
        batch_isend_irecv({P2POp::isend(own, peer, {.group = group_}), P2POp::irecv(other, peer, {.group = group_})});
    for (const WorkPtr& work : works) work->wait();
    const bool is_lower = tied.stage < tied.other_stage;
    const at::Tensor sum = is_lower ? at::add(own, other) : at::add(other, own);
    at::Tensor& grad = at::Tensor(tied.parameter).mutable_grad();
    if (grad.defined()) {
      grad.copy_(sum);
    } else {
      grad = sum;
    }
  }
}

// A parameter that several stages here share is divided once.
void PipelineRuntime::scale_gradients() {
  const at::NoGradGuard no_grad;
  std::unordered_set<const void*> seen;
  for (const auto& [stage, run] : stages_) {
    for (const at::Tensor& parameter : trained_parameters(run->stage())) {
      const at::Tensor& grad = parameter.grad();
      if (!grad.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      at::Tensor(grad).div_(num_microbatches_);
    }
  }
}

}  // namespace cohort::pipeline
