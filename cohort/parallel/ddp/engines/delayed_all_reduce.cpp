#include "cohort/parallel/ddp/engines/delayed_all_reduce.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/parallel/ddp/buckets/bucket_memory.h"
#include "cohort/parallel/ddp/settings/purpose.h"
#include "cohort/parallel/module/synchronize.h"

namespace cohort::ddp {

DelayedAllReduce::DelayedAllReduce(Group group, std::vector<at::Tensor> parameters, const at::Tensor& hooked)
    : group_(std::move(group)), parameters_(std::move(parameters)), hooked_(hooked) {
  const auto& first = parameters_.front();
  int64_t count = 0;
  std::vector<at::Tensor> values;
  for (const auto& parameter : parameters_) {
    TORCH_CHECK_VALUE(
        parameter.dtype() == first.dtype() && parameter.device() == first.device(),
        "[cohort] delay_all_reduce_named_params: the parameters must have one dtype and be on one device, got ",
        first.dtype(), " on ", first.device(), " and ", parameter.dtype(), " on ", parameter.device());
    count += parameter.numel();
    values.push_back(parameter.detach());
  }
  memory_ = at::zeros({count}, first.options().requires_grad(false));
  int64_t offset = 0;
  for (const auto& parameter : parameters_) {
    aliases_.push_back(alias_of(memory_, offset, parameter));
    offset += parameter.numel();
  }
  if (group_->getSize() > 1) parallel::broadcast_from_first(group_, values);
  hook_ = hooked_.register_hook([this](const at::Tensor&) { start(); });
}

DelayedAllReduce::~DelayedAllReduce() { hooked_.remove_hook(hook_); }

void DelayedAllReduce::prepare() {
  const at::NoGradGuard no_grad;
  const bool are_all_undefined =
      std::none_of(parameters_.begin(), parameters_.end(), [](const at::Tensor& p) { return p.grad().defined(); });
  if (are_all_undefined) memory_.zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& gradient = parameters_[i].mutable_grad();
    if (gradient.defined() && gradient.is_alias_of(memory_) && comm::starts_like(gradient, aliases_[i])) continue;
    if (gradient.defined()) {
      aliases_[i].copy_(gradient);
    } else if (!are_all_undefined) {
      aliases_[i].zero_();
    }
    gradient = aliases_[i];
  }
}

void DelayedAllReduce::start() {
  const at::NoGradGuard no_grad;
  const comm::CalledFor purpose(kGradientExchange);
  memory_.div_(group_->getSize());
  work_ = all_reduce(memory_, {.group = group_, .async_op = true});
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    if (work_) std::exchange(work_, {})->wait();
  });
}

}  // namespace cohort::ddp
