// What a step does with gradients when all backwards have run.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/optim/clip_grad.h"
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

// Of tied ones that of the stage with the lower number counts.
bool PipelineRuntime::counts_elsewhere(const at::Tensor& parameter) const {
  return std::any_of(options_.tied_parameters.begin(), options_.tied_parameters.end(), [&](const TiedParameter& tied) {
    return tied.parameter.is_same(parameter) && tied.other_stage < tied.stage && !is_local(tied.other_stage);
  });
}

at::Tensor PipelineRuntime::clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type) const {
  const at::NoGradGuard no_grad;
  TensorList counted;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(counted),
               [&](const at::Tensor& parameter) { return !counts_elsewhere(parameter); });
  const auto of_rank = nn::utils::get_total_norm(nn::utils::gradients_of(counted), norm_type);
  at::Tensor norm = of_rank.to(at::TensorOptions(at::kDouble).device(first_here().device()));
  if (first_here().group_size() > 1) {
    const at::Tensor all = at::empty({first_here().group_size()}, norm.options());
    all_gather_single(all, norm.view({1}), {.group = group_});
    norm = norm_type == 0 ? all.sum() : at::linalg_vector_norm(all, norm_type);
  }
  nn::utils::clip_grads_with_norm_(parameters, max_norm, norm.to(of_rank.scalar_type()));
  return norm;
}

at::Tensor PipelineRuntime::mean_loss(const std::vector<at::Tensor>& losses) const {
  const at::NoGradGuard no_grad;
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  at::Tensor mean = at::zeros({}, at::TensorOptions(at::kDouble).device(first_here().device()));
  if (is_local(last)) {
    TORCH_CHECK_VALUE(!losses.empty(), "[cohort] pipeline: mean_loss needs losses on the rank with the last stage");
    for (const at::Tensor& loss : losses) mean.add_(loss.detach().reshape({}).to(mean.options()));
    mean.div_(static_cast<double>(losses.size()));
  }
  if (first_here().group_size() > 1) broadcast(mean, group_rank(rank_of(last)), {.group = group_});
  return mean;
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
