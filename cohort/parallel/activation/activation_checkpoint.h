/// Modules that run another module's forward differently: with activation checkpointing, or with autograd's saved tensors on the
/// CPU.
///
///     cohort::ActivationCheckpoint block(Block(64));            // any torch::nn module; options second
///     torch::nn::Sequential net(Linear(8, 64), block);
///     cohort::apply_activation_checkpointing<BlockImpl>(*model->layers, [](size_t i) { return i % 2 == 0; });
///
/// The wrapper takes the module's place, and does not change names in its state: see parallel/module/wrapper_base.h. In C++ the
/// types of children are fixed: code that reaches a child with `child->as<BlockImpl>()` does not find it inside its wrapper.
/// PyTorch source: torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py. Thread-safety: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/activation/save_on_cpu.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort {

namespace activation {

template <class Net>
class CheckpointedModule : public parallel::WrapperBase<Net> {
 public:
  explicit CheckpointedModule(std::shared_ptr<Net> net, const CheckpointOptions& options = {})
      : parallel::WrapperBase<Net>("ActivationCheckpoint", net), net_(std::move(net)), options_(options) {}

  template <class... Arguments>
  auto call(Arguments&&... arguments) {
    const auto forward = [net = net_](auto&&... inputs) -> decltype(std::declval<Net&>().forward(
                                                            std::forward<decltype(inputs)>(inputs)...)) {
      return net->forward(std::forward<decltype(inputs)>(inputs)...);
    };
    return checkpoint(options_, forward, std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<Net> net_;
  CheckpointOptions options_;
};

template <class Net>
class OffloadedModule : public parallel::WrapperBase<Net> {
 public:
  explicit OffloadedModule(std::shared_ptr<Net> net, const SaveOnCpuOptions& options = {.pin_memory = true})
      : parallel::WrapperBase<Net>("OffloadWrapper", std::move(net)), options_(options) {}

  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    const SaveOnCpu offload(options_);
    return this->module().forward(std::forward<Arguments>(arguments)...);
  }

 private:
  SaveOnCpuOptions options_;
};

}  // namespace activation

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class ActivationCheckpointImpl final
    : public parallel::WrapperWithForward<activation::CheckpointedModule<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<activation::CheckpointedModule<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class ActivationCheckpoint : public parallel::WrapperHolder<ActivationCheckpointImpl<Net, Signature>, Net> {
  using Impl = ActivationCheckpointImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  explicit ActivationCheckpoint(std::shared_ptr<Net> net, const CheckpointOptions& options = {})
      : Holder(std::make_shared<Impl>(std::move(net), options)) {}
  /// Throws c10::ValueError if no std::shared_ptr owns the module.
  explicit ActivationCheckpoint(std::type_identity_t<Net>& net, const CheckpointOptions& options = {})
      : ActivationCheckpoint(parallel::owner_of(net, "ActivationCheckpoint"), options) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit ActivationCheckpoint(const Wrapped& holder, const CheckpointOptions& options = {})
      : ActivationCheckpoint(holder.ptr(), options) {}
};

template <class Net>
ActivationCheckpoint(std::shared_ptr<Net>, CheckpointOptions = {}) -> ActivationCheckpoint<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> ActivationCheckpoint(Net&, CheckpointOptions = {})
->ActivationCheckpoint<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
ActivationCheckpoint(const Wrapped&, CheckpointOptions = {})->ActivationCheckpoint<typename Wrapped::ContainedType>;

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class OffloadWrapperImpl final : public parallel::WrapperWithForward<activation::OffloadedModule<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<activation::OffloadedModule<Net>, Net, Signature>;

 public:
  using Base::Base;
};

/// Runs forward under SaveOnCpu, pinned by default.
template <class Net, class Signature = parallel::ForwardSignature<Net>>
class OffloadWrapper : public parallel::WrapperHolder<OffloadWrapperImpl<Net, Signature>, Net> {
  using Impl = OffloadWrapperImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  explicit OffloadWrapper(std::shared_ptr<Net> net, const SaveOnCpuOptions& options = {.pin_memory = true})
      : Holder(std::make_shared<Impl>(std::move(net), options)) {}
  explicit OffloadWrapper(std::type_identity_t<Net>& net, const SaveOnCpuOptions& options = {.pin_memory = true})
      : OffloadWrapper(parallel::owner_of(net, "OffloadWrapper"), options) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit OffloadWrapper(const Wrapped& holder, const SaveOnCpuOptions& options = {.pin_memory = true})
      : OffloadWrapper(holder.ptr(), options) {}
};

template <class Net>
OffloadWrapper(std::shared_ptr<Net>, SaveOnCpuOptions = {}) -> OffloadWrapper<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> OffloadWrapper(Net&, SaveOnCpuOptions = {})
->OffloadWrapper<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
OffloadWrapper(const Wrapped&, SaveOnCpuOptions = {})->OffloadWrapper<typename Wrapped::ContainedType>;

/// Chooses children by their index in the container.
using ChildPredicate = std::function<bool(size_t index)>;

/// Puts an ActivationCheckpoint in the place of each child of type Net for which `check` holds (if absent, each). Children that
/// are already wrapped have another type and stay as they are. Returns the number of children wrapped.
template <class Net>
size_t apply_activation_checkpointing(torch::nn::ModuleListImpl& list, const ChildPredicate& check = {},
                                      const CheckpointOptions& options = {}) {
  size_t num_wrapped = 0;
  size_t index = 0;
  for (std::shared_ptr<torch::nn::Module>& child : list) {
    const size_t place = index++;
    auto net = std::dynamic_pointer_cast<Net>(child);
    if (!net || (check && !check(place))) continue;
    child = list.replace_module(std::to_string(place), ActivationCheckpoint<Net>(std::move(net), options).ptr());
    ++num_wrapped;
  }
  return num_wrapped;
}

/// The same in a Sequential, whose children may have names.
template <class Net>
size_t apply_activation_checkpointing(torch::nn::SequentialImpl& sequential, const ChildPredicate& check = {},
                                      const CheckpointOptions& options = {}) {
  const auto names = sequential.named_children().keys();
  size_t num_wrapped = 0;
  size_t index = 0;
  for (torch::nn::AnyModule& child : sequential) {
    const size_t place = index++;
    auto net = std::dynamic_pointer_cast<Net>(child.ptr());
    if (!net || (check && !check(place))) continue;
    ActivationCheckpoint<Net> wrapped(std::move(net), options);
    sequential.replace_module(names[place], wrapped.ptr());
    child = torch::nn::AnyModule(wrapped);
    ++num_wrapped;
  }
  return num_wrapped;
}

}  // namespace cohort
