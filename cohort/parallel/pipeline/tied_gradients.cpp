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
#include <utility>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/fsdp/module_tensor.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/pipeline/pipeline_runtime.h"

namespace cohort::pipeline {
namespace {

// What this rank has of it.
at::Tensor gradient_or_zeros(const at::Tensor& parameter) {
  const at::Tensor& grad = parameter.grad();
  return grad.defined() ? fsdp::own_gradient(grad, parameter).contiguous() : at::zeros_like(fsdp::own_part(parameter));
}

void put_gradient(const at::Tensor& parameter, const at::Tensor& values) {
  at::Tensor& grad = at::Tensor(parameter).mutable_grad();
  if (grad.defined() && !is_dtensor(parameter)) {
    grad.copy_(values);
  } else {
    grad = fsdp::laid_as(parameter, values);
  }
}

bool is_between(const TiedParameter& tied, int stage, int other_stage) {
  return tied.stage == stage && tied.other_stage == other_stage;
}

}  // namespace

void PipelineRuntime::check_ties() const {
  const int num_stages = static_cast<int>(stage_ranks_.size());
  for (const TiedParameter& tied : options_.tied_parameters) {
    const auto [lower, higher] = std::minmax(tied.stage, tied.other_stage);
    TORCH_CHECK_VALUE(lower >= 0 && higher < num_stages, "[cohort] pipeline: a tied parameter is of stages ",
                      tied.stage, " and ", tied.other_stage, ", but the pipeline has ", num_stages);
    TORCH_CHECK_VALUE(is_local(tied.stage), "[cohort] pipeline: a tied parameter is of stage ", tied.stage,
                      ", which this rank does not have\n  hint: each of the two ranks names its own stage first");
    try {
      parallel::check_has_own_gradient(tied.parameter);
    } catch (const c10::ValueError& error) {
      C10_THROW_ERROR(ValueError, c10::str("[cohort] pipeline: of what stages ", lower, " and ", higher, " share, ",
                                           error.what_without_backtrace()));
    }
  }
}

// Fused steps come before the other stage's part.
void PipelineRuntime::check_optimizers() const {
  const bool has_ties = std::any_of(options_.tied_parameters.begin(), options_.tied_parameters.end(),
                                    [&](const TiedParameter& tied) { return !is_one_tensor(tied); });
  if (!has_ties) return;
  const bool steps =
      std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) { return stage.second->steps_optimizer(); });
  TORCH_CHECK_VALUE(!steps,
                    "[cohort] pipeline: the optimizer of a stage steps while backward runs (fuse_step), but its "
                    "gradients are added to those of another stage first (tied_parameters)\n  hint: call "
                    "optimizer.step() after the schedule's step() instead");
}

// Undefined where another rank has the other stage, or this one both with one tensor, whose gradient has both.
at::Tensor PipelineRuntime::here_too(const TiedParameter& tied) const {
  const auto& all = options_.tied_parameters;
  if (!is_local(tied.other_stage)) return {};
  auto before = std::count_if(
      all.data(), &tied, [&](const TiedParameter& each) { return is_between(each, tied.stage, tied.other_stage); });
  for (const TiedParameter& other : all) {
    if (!is_between(other, tied.other_stage, tied.stage) || before-- > 0) continue;
    return other.parameter.is_same(tied.parameter) ? at::Tensor() : other.parameter;
  }
  return {};
}

// This rank has both stages, and the tensor's gradient is both stages'.
bool PipelineRuntime::is_one_tensor(const TiedParameter& tied) const {
  return is_local(tied.other_stage) && !here_too(tied).defined();
}

// The stage with the lower number gives its value.
void PipelineRuntime::share_tied_values() {
  const at::NoGradGuard no_grad;
  for (const TiedParameter& tied : options_.tied_parameters) {
    const bool is_lower = tied.stage < tied.other_stage;
    at::Tensor own = fsdp::own_part(tied.parameter);
    if (is_local(tied.other_stage)) {
      const at::Tensor other = here_too(tied);
      if (other.defined() && !is_lower) own.copy_(fsdp::own_part(other));
      continue;
    }
    const PointToPointOptions in_group{.group = group_};
    const auto peer = group_rank(rank_of(tied.other_stage));
    if (is_lower) {
      isend(own.contiguous(), peer, in_group)->wait();
    } else {
      const at::Tensor value = at::empty_like(own, at::MemoryFormat::Contiguous);
      irecv(value, peer, in_group)->wait();
      own.copy_(value);
    }
  }
}

TensorList PipelineRuntime::take_tied_gradients() const {
  const at::NoGradGuard no_grad;
  TensorList earlier;
  for (const TiedParameter& tied : options_.tied_parameters) {
    at::Tensor& kept = earlier.emplace_back();
    at::Tensor& grad = at::Tensor(tied.parameter).mutable_grad();
    if (is_one_tensor(tied) || !grad.defined()) continue;
    kept = grad.clone();  // replicas and shards may have the step's in the same memory
    grad.reset();
  }
  return earlier;
}

// Both ranks add up the same two numbers in the same order.
at::Tensor PipelineRuntime::sum_of_both(const TiedParameter& tied) const {
  const bool is_lower = tied.stage < tied.other_stage;
  const at::Tensor own = gradient_or_zeros(tied.parameter);
  const at::Tensor other = at::empty_like(own);
  const auto peer = group_rank(rank_of(tied.other_stage));
  const auto works =
      batch_isend_irecv({P2POp::isend(own, peer, {.group = group_}), P2POp::irecv(other, peer, {.group = group_})});
  for (const WorkPtr& work : works) work->wait();
  return is_lower ? at::add(own, other) : at::add(other, own);
}

void PipelineRuntime::add_tied_gradients(const TensorList& earlier) {
  const at::NoGradGuard no_grad;
  const auto& all = options_.tied_parameters;
  for (const TiedParameter& tied : all) {
    if (!is_local(tied.other_stage)) {
      put_gradient(tied.parameter, sum_of_both(tied));
    } else if (const at::Tensor other = here_too(tied); other.defined() && tied.stage < tied.other_stage) {
      const at::Tensor sum = at::add(gradient_or_zeros(tied.parameter), gradient_or_zeros(other));
      put_gradient(tied.parameter, sum);
      put_gradient(other, sum.clone());
    }
  }
  for (size_t i = 0; i < earlier.size(); ++i) {
    if (earlier[i].defined()) at::Tensor(all[i].parameter).mutable_grad().add_(earlier[i]);
  }
}

// Of tied ones that of the stage with the lower number counts.
bool PipelineRuntime::counts_elsewhere(const at::Tensor& parameter) const {
  return std::any_of(options_.tied_parameters.begin(), options_.tied_parameters.end(), [&](const TiedParameter& tied) {
    return tied.parameter.is_same(parameter) && tied.other_stage < tied.stage && !is_one_tensor(tied);
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
    for (const at::Tensor& loss : losses) mean.add_(loss.detach().reshape({}).to(mean.options()));
    mean.div_(static_cast<double>(losses.size()));
  }
  // Before the check: the others wait for it.
  if (first_here().group_size() > 1) broadcast(mean, group_rank(rank_of(last)), {.group = group_});
  TORCH_CHECK_VALUE(!is_local(last) || !losses.empty(),
                    "[cohort] pipeline: mean_loss needs losses on the rank with the last stage, which is this one");
  return mean;
}

at::Tensor PipelineRuntime::mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const {
  std::vector<at::Tensor> own;
  StepFailure failure;
  if (is_local(static_cast<int>(stage_ranks_.size()) - 1)) failure.attempt("", [&] { own = losses(); });
  failure.share(group_, first_here().group_size());
  return mean_loss(own);
}

}  // namespace cohort::pipeline
