#include "cohort/parallel/norm/convert_sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/ops/batch_norm_native.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/overrides/override.h"
#include "cohort/parallel/norm/sync_batch_norm.h"
#include "cohort/parallel/norm/sync_batch_norm_function.h"

namespace cohort {
namespace {

// The mark by which a layer is recognized: it is attached to a tensor that the layer passes to torch::batch_norm, lives as long,
// and stays when the tensor's data are exchanged, as by to(dtype). It is a hook on gradients, since LibTorch lets others store
// nothing else there.
struct SyncMark final : torch::autograd::FunctionPreHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    return gradients;
  }

  Group group;
  std::weak_ptr<torch::nn::Module> layer;
  bool is_placeholder = false;  // on a weight that the layer has only for this
};

SyncMark* mark_of(const at::Tensor& tensor) {
  const auto* meta = tensor.defined() ? torch::autograd::impl::get_autograd_meta(tensor) : nullptr;
  if (!meta) return nullptr;
  for (const auto& hook : meta->hooks_) {
    if (auto* mark = dynamic_cast<SyncMark*>(hook.get())) return mark;
  }
  return nullptr;
}

const SyncMark* mark_of(const at::Tensor& weight, const at::Tensor& running_mean) {
  const auto* found = mark_of(weight);
  return found ? found : mark_of(running_mean);
}

bool is_training(const SyncMark& mark) {
  const auto layer = mark.layer.lock();
  return layer && layer->is_training();
}

at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                      bool cudnn_enabled) {
  norm::BatchNormTensors tensors{or_undefined(weight), or_undefined(bias), or_undefined(running_mean),
                                 or_undefined(running_var)};
  const auto* mark = mark_of(tensors.weight, tensors.running_mean);
  if (mark && mark->is_placeholder) tensors.weight.reset();
  const auto group = mark && training && is_training(*mark) ? norm::group_to_sync(mark->group) : Group();
  if (group) return norm::sync_batch_norm(input, tensors, group, momentum, eps);
  return at::native::batch_norm(input, tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var,
                                training, momentum, eps, cudnn_enabled);
}

// Overrides the kernel for good: it stays for programs that convert no more modules.
void take_over(c10::DeviceType type) {
  const auto backend = c10::toBackendComponent(c10::computeDispatchKey(at::kFloat, at::kStrided, c10::Device(type)));
  const auto key = c10::getAutogradKeyFromBackend(backend);
  comm::override_kernel("convert_sync_batchnorm", "aten::batch_norm", key, torch::CppFunction(TORCH_FN(batch_norm)));
}

void take_over_batch_norm() {
  take_over(at::kCPU);
  if (const auto accelerator = comm::accelerator_type()) take_over(*accelerator);
}

// Returns the tensor of a layer that carries its mark; undefined if it has no mark yet.
template <class Layer>
at::Tensor carrier_of(const Layer& layer) {
  return layer.weight.defined() ? layer.weight : layer.running_mean;
}

void check_convertible(const std::string& name, const torch::nn::Module& layer) {
  TORCH_CHECK_VALUE(!layer.weak_from_this().expired(),
                    "[cohort] convert_sync_batchnorm: ", name.empty() ? "the module" : "\"" + name + "\"",
                    " cannot be converted, since no std::shared_ptr owns it\n  hint: make it with its holder, such as "
                    "torch::nn::BatchNorm2d, or with std::make_shared");
}

template <class Layer>
void convert_layer(Layer& layer, const Group& group) {
  auto carrier = carrier_of(layer);
  if (auto* found = mark_of(carrier)) {
    found->group = group;
    return;
  }
  auto mark = std::make_unique<SyncMark>();
  mark->group = group;
  mark->layer = layer.weak_from_this();
  mark->is_placeholder = !carrier.defined();
  if (!carrier.defined()) carrier = layer.weight = at::ones({layer.options.num_features()});
  torch::autograd::impl::add_hook(carrier, std::move(mark));
}

// Calls `fn` with `module` if it is a batch norm of LibTorch. Returns whether it is.
template <class Fn>
bool with_batch_norm(torch::nn::Module& module, Fn fn) {
  if (auto* of_1d = module.as<torch::nn::BatchNorm1d>()) return fn(*of_1d), true;
  if (auto* of_2d = module.as<torch::nn::BatchNorm2d>()) return fn(*of_2d), true;
  if (auto* of_3d = module.as<torch::nn::BatchNorm3d>()) return fn(*of_3d), true;
  return false;
}

}  // namespace

void convert_sync_batchnorm(torch::nn::Module& module, const Group& process_group) {
  using Named = std::function<void(const std::string&, torch::nn::Module&)>;
  module.apply(Named([](const std::string& name, torch::nn::Module& layer) {
    with_batch_norm(layer, [&](auto& norm) { check_convertible(name, norm); });
  }));
  take_over_batch_norm();
  module.apply([&](torch::nn::Module& layer) {
    if (auto* norm = layer.as<SyncBatchNorm>()) norm->options.process_group = process_group;
    with_batch_norm(layer, [&](auto& norm) { convert_layer(norm, process_group); });
  });
}

}  // namespace cohort

namespace cohort::norm {

bool has_sync_batch_norm(const torch::nn::Module& module) {
  bool found = false;
  // LibTorch's as<>() of a const module does not accept holders.
  const_cast<torch::nn::Module&>(module).apply([&](torch::nn::Module& layer) {
    if (layer.as<SyncBatchNorm>()) found = true;
    with_batch_norm(layer, [&](auto& norm) { found = found || mark_of(carrier_of(norm)); });
  });
  return found;
}

}  // namespace cohort::norm
