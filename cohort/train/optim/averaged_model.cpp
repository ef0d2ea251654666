#include "cohort/train/optim/averaged_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_set>

#include "cohort/checkpoint/recovery/skip_init.h"

namespace cohort::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

void check_decay(double decay) {
  TORCH_CHECK_VALUE(decay >= 0 && decay <= 1, "Invalid decay value ", decay,
                    " provided. Please provide a value in [0,1] range.");
}

bool can_lerp(const at::Tensor& tensor) { return tensor.is_floating_point() || tensor.is_complex(); }

// Tensors of the average and of the model, in the same order.
struct TensorPairs {
  Tensors averaged;
  Tensors current;

  void add(const at::Tensor& average, const at::Tensor& model) {
    averaged.push_back(average);
    current.push_back(model);
  }
};

// Returns each tensor of the average once.
TensorPairs pairs_of(const char* what, const Tensors& averaged, const Tensors& current) {
  TORCH_CHECK_VALUE(averaged.size() == current.size(), "[cohort] AveragedModel: the model has ", current.size(), " ",
                    what, ", but the average ", averaged.size());
  TensorPairs pairs;
  std::unordered_set<const void*> seen;
  for (size_t i = 0; i < averaged.size(); ++i) {
    TORCH_CHECK_VALUE(averaged[i].sizes() == current[i].sizes(), "[cohort] AveragedModel: number ", i, " of the ", what,
                      " has sizes ", current[i].sizes(), " in the model, but ", averaged[i].sizes(), " in the average");
    if (!seen.insert(averaged[i].unsafeGetTensorImpl()).second) continue;
    const auto average = averaged[i].detach();
    pairs.add(average, current[i].detach().to(average.device()));
  }
  return pairs;
}

void copy_all(const TensorPairs& pairs) {
  for (size_t i = 0; i < pairs.averaged.size(); ++i) pairs.averaged[i].copy_(pairs.current[i]);
}

std::vector<TensorPairs> by_device_and_dtype(const TensorPairs& pairs) {
  std::vector<TensorPairs> lists;
  for (size_t i = 0; i < pairs.averaged.size(); ++i) {
    const auto& tensor = pairs.averaged[i];
    const auto found = std::find_if(lists.begin(), lists.end(), [&](const TensorPairs& list) {
      const auto& first = list.averaged.front();
      return first.device() == tensor.device() && first.scalar_type() == tensor.scalar_type();
    });
    (found == lists.end() ? lists.emplace_back() : *found).add(tensor, pairs.current[i].to(tensor.scalar_type()));
  }
  return lists;
}

void average_each(const AverageFunction& function, const TensorPairs& pairs, const at::Tensor& n_averaged) {
  for (size_t i = 0; i < pairs.averaged.size(); ++i) {
    const auto& averaged = pairs.averaged[i];
    averaged.copy_(function(averaged, pairs.current[i], n_averaged.to(averaged.device())));
  }
}

}  // namespace

AverageFunction get_ema_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const at::Tensor& averaged, const at::Tensor& current, const at::Tensor&) {
    return decay * averaged + (1 - decay) * current;
  };
}

MultiAverageFunction get_ema_multi_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const Tensors& averaged, const Tensors& current, const at::Tensor&) {
    if (can_lerp(averaged.front())) return at::_foreach_lerp_(averaged, current, 1 - decay);
    for (size_t i = 0; i < averaged.size(); ++i) averaged[i].copy_(averaged[i] * decay + current[i] * (1 - decay));
  };
}

AverageFunction get_swa_avg_fn() {
  return [](const at::Tensor& averaged, const at::Tensor& current, const at::Tensor& n_averaged) {
    return averaged + (current - averaged) / (n_averaged + 1);
  };
}

MultiAverageFunction get_swa_multi_avg_fn() {
  return [](const Tensors& averaged, const Tensors& current, const at::Tensor& n_averaged) {
    if (!can_lerp(averaged.front())) {
      // PyTorch's kernel does not support integers.
      return average_each(get_swa_avg_fn(), {averaged, current}, n_averaged);
    }
    // In float32, like 1 / n_averaged in Python.
    at::_foreach_lerp_(averaged, current, (n_averaged + 1).reciprocal().item());
  };
}

std::shared_ptr<torch::nn::Module> AveragedModule::clone_of(const torch::nn::Module& model,
                                                            const AveragedModelOptions& options) {
  if (options.copy) return options.copy;
  const checkpoint::SkipInit no_random_numbers;
  return model.clone(options.device);
}

AveragedModule::AveragedModule(const torch::nn::Module& model, std::shared_ptr<torch::nn::Module> copy,
                               AveragedModelOptions options)
    : torch::nn::Module("AveragedModel"), average_(std::move(copy)), options_(std::move(options)) {
  TORCH_CHECK_VALUE(!options_.avg_fn || !options_.multi_avg_fn,
                    "Only one of avg_fn and multi_avg_fn should be provided");
  const at::NoGradGuard no_grad;
  if (options_.copy) {
    if (options_.device) average_->to(*options_.device);
    average_->train(model.is_training());
    copy_all(pairs_of("parameters", average_->parameters(), model.parameters()));
    copy_all(pairs_of("buffers", average_->buffers(), model.buffers()));
  }
  const auto device = options_.device.value_or(c10::Device(at::kCPU));
  n_averaged_ = register_buffer("n_averaged", at::zeros({}, at::TensorOptions(device).dtype(at::kLong)));
  register_module("module", average_);
}

void AveragedModule::update_parameters(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  auto pairs = pairs_of("parameters", average_->parameters(), model.parameters());
  const auto buffers = pairs_of("buffers", average_->buffers(), model.buffers());
  if (options_.use_buffers) {
    for (size_t i = 0; i < buffers.averaged.size(); ++i) pairs.add(buffers.averaged[i], buffers.current[i]);
  } else {
    copy_all(buffers);
  }
  if (n_averaged_.item<int64_t>() == 0) {
    copy_all(pairs);
  } else if (options_.avg_fn) {
    average_each(options_.avg_fn, pairs, n_averaged_);
  } else {
    const MultiAverageFunction mean = get_swa_multi_avg_fn();
    for (const auto& list : by_device_and_dtype(pairs)) {
      const auto device = list.averaged.front().device();
      const auto n_averaged = n_averaged_.to(device);
      if (options_.multi_avg_fn) {
        options_.multi_avg_fn(list.averaged, list.current, n_averaged);
      } else if (!device.is_cpu()) {  // as PyTorch; its function for lists of tensors rounds differently
        mean(list.averaged, list.current, n_averaged);
      } else {
        average_each(get_swa_avg_fn(), list, n_averaged);
      }
    }
  }
  n_averaged_ += 1;
}

}  // namespace cohort::optim
