// The gradients of a GatheredParamGroup, and writing its shards.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/parallel/fsdp/gathered/gathered_param_group.h"
#include "cohort/parallel/fsdp/tensors/absent_gradients.h"

namespace cohort::fsdp {

at::Tensor GatheredParamGroup::take_gradient(size_t index) {
  const auto& parameter = parameters_[index];
  auto grad = take_full_gradient(parameter.full);
  if (!grad.defined()) return std::exchange(items_[index].accumulated, at::Tensor());
  grad = own_gradient(grad, parameter);
  TORCH_CHECK(grad.layout() == at::kStrided,
              "[cohort] fully_shard does not support sparse gradients, but the gradient of '", parameter.name,
              "' is one");
  used_in_current_stream(grad);  // the stream in which backward was called may differ from the gradient's
  grad = comm::as_plain(grad.detach());
  auto before = std::exchange(items_[index].accumulated, at::Tensor());
  return before.defined() ? before.add_(grad) : grad;
}

std::vector<at::Tensor> GatheredParamGroup::take_gradients() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < items_.size(); ++i) gradients.push_back(take_gradient(i));
  return gradients;
}

// Accumulates in the dtype of reductions: sums of many passes need its range.
void GatheredParamGroup::accumulate(const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (gradients[i].defined()) items_[i].accumulated = gradients[i].to(reduce_dtype(items_[i].lane));
  }
}

void GatheredParamGroup::finish_pass() {
  is_finished_ = true;
  auto gradients = take_gradients();
  let_go_after_backward();
  if (!settings_.requires_gradient_sync) {
    accumulate(gradients);
    return;
  }
  std::map<c10::ScalarType, std::vector<GradientReduction::Part>> parts;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!parameters_[i].shard.requires_grad()) continue;
    parts[reduce_dtype(items_[i].lane)].push_back({i, items_[i].chunking, std::move(gradients[i])});
  }
  for (auto& [dtype, of_dtype] : parts) reduce(dtype, std::move(of_dtype));
}

ReduceSettings GatheredParamGroup::reduce_settings() const {
  return {.shard_group = settings_.reduce_scatter_group ? settings_.reduce_scatter_group : shard_group_,
          .replica_group = replica_group_,
          .divide_factor = settings_.gradient_divide_factor,
          .only_sums = settings_.force_sum_reduction_for_comms,
          .all_reduces = settings_.requires_all_reduce,
          .gives_unused = settings_.reduce_scatter_unused_params,
          .reduce_scatter = settings_.reduce_scatter,
          .all_reduce_hook = settings_.all_reduce_hook,
          .hook_stream = settings_.all_reduce_hook_stream};
}

// On an accelerator everything is queued at once, in its stream; on the CPU the rest of the work waits until its result is
// needed.
void GatheredParamGroup::reduce(c10::ScalarType dtype, std::vector<GradientReduction::Part> parts) {
  context_->finish_reductions(context_->max_reductions - 1);
  auto reduction =
      std::make_shared<GradientReduction>(std::move(parts), dtype, device_, reduce_settings(), context_->reduce_stream);
  auto finish = [group = weak_from_this(), reduction, dtype] {
    const auto self = group.lock();
    if (!self) return;
    reduction->finish(self->kept_back_[dtype],
                      [&](size_t index, const at::Tensor& chunk) { self->give(index, chunk); });
  };
  if (!context_->reduce_stream) {
    context_->reductions.push_back({this, std::move(finish)});
    return;
  }
  finish();
  context_->reductions.push_back({this, [done = context_->reduce_stream.mark()]() mutable { done.block_current(); }});
}

void GatheredParamGroup::give(size_t index, const at::Tensor& chunk) {
  const auto& shard = parameters_[index].shard;
  const auto own = chunk.narrow(0, 0, shard.numel()).view(shard.sizes());
  auto gradient = own.to(shard.device(), shard.scalar_type()).variable_data();
  auto& grad = shard.mutable_grad();
  if (grad.defined()) {
    grad.add_(gradient);
  } else {
    grad = std::move(gradient);
  }
  if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(shard)) (*hook)(shard);
}

void GatheredParamGroup::abandon_forward() {
  let_go();
  phase_ = Phase::kIdle;
  num_expected_ = num_done_ = 0;
}

void GatheredParamGroup::reset() {
  std::erase_if(context_->reductions, [this](const auto& reduction) {
    if (reduction.owner == this && context_->reduce_stream) reduction.finish();  // gradients are being written
    return reduction.owner == this;
  });
  kept_back_.clear();
  if (!context_->gather_stream) gathering_.clear();
  for (size_t i = 0; i < items_.size(); ++i) {
    parameters_[i].full.mutable_grad().reset();
    items_[i].accumulated.reset();
  }
  let_go();
  phase_ = Phase::kIdle;
  num_expected_ = num_done_ = 0;
  was_used_ = is_finished_ = false;
}

// Writes one parameter at a time, so that no rank ever holds the whole model.
void GatheredParamGroup::write(const Writer* write) {
  const at::NoGradGuard no_grad;
  let_go();
  for (size_t i = 0; i < items_.size(); ++i) write_one(i, write);
}

void GatheredParamGroup::write_one(size_t index, const Writer* write) {
  const auto& chunking = items_[index].chunking;
  const auto own = own_chunk(index);
  if (own.numel() == 0) {  // other ranks may have a shard of it
    if (write) (*write)(parameters_[index].name, at::empty(chunking.sizes, own.options()));
    return;
  }
  auto sent = own.to(device_);
  auto rows = at::empty({world_size_, own.numel()}, sent.options());
  all_gather_single(rows, sent, {.group = shard_group_});
  if (write) {
    const auto unsharded = at::empty(chunking.sizes, sent.options());
    copy_from_rows(rows, chunking, unsharded);
    (*write)(parameters_[index].name, unsharded);
    copy_to_rows(unsharded, chunking, rows);
  }
  const auto is_first_shard = rank_ == 0;
  std::vector<at::Tensor> lists = is_first_shard ? rows.unbind(0) : std::vector<at::Tensor>();
  scatter(sent, lists, group_rank(0), {.group = shard_group_});
  if (replica_group_) broadcast(sent, group_rank(0), {.group = replica_group_});
  if (!sent.is_same(own)) own.copy_(sent);
  torch::autograd::impl::bump_version(parameters_[index].shard);
}

}  // namespace cohort::fsdp
