// The work on gradients when all backward passes of a step have run: tied parameters, clipping, the mean loss.
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

#include "cohort/comm/error/exception_text.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/fsdp/tensors/module_tensor.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/purpose.h"
#include "cohort/parallel/pipeline/pipeline_runtime.h"

namespace cohort::pipeline {
namespace {

// Returns this rank's shard of the gradient.
at::Tensor gradient_or_zeros(const at::Tensor& parameter) {
  const at::Tensor& grad = parameter.grad();
  return grad.defined() ? fsdp::own_gradient(grad, parameter).contiguous() : at::zeros_like(fsdp::own_shard(parameter));
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
    TORCH_CHECK_VALUE(lower >= 0 && higher < num_stages, "[cohort] pipeline: a tied parameter belongs to stages ",
                      tied.stage, " and ", tied.other_stage, ", but the pipeline has ", num_stages);
    TORCH_CHECK_VALUE(
        is_local(tied.stage), "[cohort] pipeline: a tied parameter belongs to stage ", tied.stage,
        ", which this rank does not have\n  hint: name the rank's own stage first, on each of the two ranks");
    check_partner(tied);
    try {
      parallel::check_has_own_gradient(tied.parameter);
    } catch (const c10::ValueError& error) {
      C10_THROW_ERROR(ValueError, c10::str("[cohort] pipeline: of the parameters that stages ", lower, " and ", higher,
                                           " share, ", comm::text_of(error)));
    }
  }
}

void PipelineRuntime::check_partner(const TiedParameter& tied) const {
  const auto& all = options_.tied_parameters;
  const bool has_another = std::any_of(all.begin(), all.end(), [&](const TiedParameter& other) {
    return other.parameter.is_same(tied.parameter) && !is_between(other, tied.stage, tied.other_stage) &&
           !is_between(other, tied.other_stage, tied.stage);
  });
  TORCH_CHECK_VALUE(!has_another, "[cohort] pipeline: a parameter of stage ", tied.stage,
                    " is tied to more than one other stage\n  hint: share a parameter between two stages at most");
  if (!is_local(tied.other_stage)) return;
  const bool is_named_there = std::any_of(all.begin(), all.end(), [&](const TiedParameter& other) {
    return is_between(other, tied.other_stage, tied.stage);
  });
  const auto there = stages_.at(tied.other_stage)->stage().module()->parameters();
  const bool is_there =
      std::any_of(there.begin(), there.end(), [&](const at::Tensor& other) { return other.is_same(tied.parameter); });
  TORCH_CHECK_VALUE(is_named_there || is_there, "[cohort] pipeline: this rank has stages ", tied.stage, " and ",
                    tied.other_stage, ", but only stage ", tied.stage,
                    " has a TiedParameter\n  hint: add a TiedParameter of stage ", tied.other_stage, ", too");
}

// Fused steps run before the other stage's gradients arrive.
void PipelineRuntime::check_optimizers() const {
  const bool has_ties = std::any_of(options_.tied_parameters.begin(), options_.tied_parameters.end(),
                                    [&](const TiedParameter& tied) { return !is_one_tensor(tied); });
  if (!has_ties) return;
  const bool steps =
      std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) { return stage.second->steps_optimizer(); });
  TORCH_CHECK_VALUE(!steps,
                    "[cohort] pipeline: the optimizer of a stage steps while backward runs (fuse_step), but its "
                    "gradients must first be added to those of another stage (tied_parameters)\n  hint: call "
                    "optimizer.step() after the schedule's step() instead");
}

// Returns an undefined tensor if another rank has the other stage, or if this rank has both with one tensor, whose gradient has
// both.
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

// Whether this rank has both stages with one tensor, whose gradient is both stages'.
bool PipelineRuntime::is_one_tensor(const TiedParameter& tied) const {
  return is_local(tied.other_stage) && !here_too(tied).defined();
}

// Returns the tensors of the ranks with the other stages; undefined if that is this rank. Exchanges all at once, since ranks may
// be tied in a circle.
TensorList PipelineRuntime::exchanged(const TensorList& own) const {
  TensorList others(own.size());
  std::vector<P2POp> messages;
  for (size_t i = 0; i < own.size(); ++i) {
    const int other_stage = options_.tied_parameters[i].other_stage;
    if (is_local(other_stage)) continue;
    others[i] = at::empty_like(own[i]);
    const auto peer = group_rank(rank_of(other_stage));
    messages.push_back(P2POp::isend(own[i], peer, {.group = group_}));
    messages.push_back(P2POp::irecv(others[i], peer, {.group = group_}));
  }
  if (messages.empty()) return others;
  for (const WorkPtr& work : batch_isend_irecv(messages)) work->wait();
  return others;
}

// The stage with the lower number gives its value.
void PipelineRuntime::share_tied_values() {
  const at::NoGradGuard no_grad;
  const auto& all = options_.tied_parameters;
  TensorList own;
  for (const TiedParameter& tied : all) own.push_back(fsdp::own_shard(tied.parameter).contiguous());
  const TensorList others = exchanged(own);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].stage < all[i].other_stage) continue;
    const at::Tensor here = others[i].defined() ? at::Tensor() : here_too(all[i]);
    const at::Tensor& other = here.defined() ? fsdp::own_shard(here) : others[i];
    if (other.defined()) at::Tensor(fsdp::own_shard(all[i].parameter)).copy_(other);
  }
}

TensorList PipelineRuntime::take_tied_gradients() const {
  const at::NoGradGuard no_grad;
  TensorList earlier;
  for (const TiedParameter& tied : options_.tied_parameters) {
    at::Tensor& kept = earlier.emplace_back();
    at::Tensor& grad = at::Tensor(tied.parameter).mutable_grad();
    if (is_one_tensor(tied) || !grad.defined()) continue;
    kept = grad.clone();  // replicas and shards may have the step's gradients in the same memory
    grad.reset();
  }
  return earlier;
}

// Both ranks add the same two numbers in the same order.
void PipelineRuntime::add_tied_gradients(const TensorList& earlier) {
  const at::NoGradGuard no_grad;
  const auto& all = options_.tied_parameters;
  TensorList own;
  for (const TiedParameter& tied : all) own.push_back(gradient_or_zeros(tied.parameter));
  const TensorList others = exchanged(own);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_lower = all[i].stage < all[i].other_stage;
    if (others[i].defined()) {
      put_gradient(all[i].parameter, is_lower ? at::add(own[i], others[i]) : at::add(others[i], own[i]));
    } else if (const at::Tensor here = here_too(all[i]); here.defined() && is_lower) {
      const at::Tensor sum = at::add(own[i], gradient_or_zeros(here));
      put_gradient(all[i].parameter, sum);
      put_gradient(here, sum.clone());
    }
  }
  for (size_t i = 0; i < earlier.size(); ++i) {
    if (earlier[i].defined()) at::Tensor(all[i].parameter).mutable_grad().add_(earlier[i]);
  }
}

// A tied parameter counts on the stage with the lower number.
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
    const comm::CalledFor purpose(optim::kClipGradNorm);
    const at::Tensor all = at::empty({first_here().group_size()}, norm.options());
    all_gather_single(all, norm.view({1}), {.group = group_});
    norm = norm_type == 0 ? all.sum() : at::linalg_vector_norm(all, norm_type);
  }
  nn::utils::clip_grads_with_norm_(parameters, max_norm, norm.to(of_rank.scalar_type()));
  return norm;
}

at::Tensor PipelineRuntime::mean_loss(const std::vector<at::Tensor>& losses) const {
  return mean_loss([&] { return losses; });
}

at::Tensor PipelineRuntime::mean_loss(const std::function<std::vector<at::Tensor>()>& losses) const {
  const at::NoGradGuard no_grad;
  const int last = static_cast<int>(stage_ranks_.size()) - 1;
  const at::Tensor mean = at::zeros({}, at::TensorOptions(at::kDouble).device(first_here().device()));
  comm::StepFailure failure;
  if (is_local(last)) {
    failure.attempt("", [&] {
      const auto own = losses();
      TORCH_CHECK_VALUE(!own.empty(), "[cohort] pipeline: mean_loss needs losses on the rank with the last stage");
      for (const at::Tensor& loss : own) {
        TORCH_CHECK_VALUE(loss.defined() && loss.numel() == 1, "[cohort] pipeline: a loss must be one number, but got ",
                          loss.defined() ? text_of(metas_of({loss})) : "nothing");
        mean.add_(loss.detach().reshape({}).to(mean.options()));
      }
      mean.div_(static_cast<double>(own.size()));
    });
  }
  share(failure, "the mean loss could not be computed");
  if (first_here().group_size() > 1) broadcast(mean, group_rank(rank_of(last)), {.group = group_});
  return mean;
}

}  // namespace cohort::pipeline
