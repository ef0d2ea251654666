/// fully_shard: trains one model on several ranks, each of which owns a shard of its parameters, gradients and optimizer state
/// (FSDP2). If the ranks share memory, the full parameters exist once per host, and nothing is gathered.
///
///     auto net = Net();                                        // any torch::nn module
///     auto model = cohort::fully_shard(net);
///     torch::optim::AdamW optimizer(model->parameters());      // this rank's shards, never net->parameters()
///     loss_fn(model(input), target).backward();                // shards get averaged gradients when it returns
///     cohort::nn::utils::clip_grad_norm_(model->parameters(), 1.0);   // the norm of all ranks' shards
///     optimizer.step();
///
/// As in PyTorch each rank's shards begin with the rank's own values: make the same model on all ranks (with one seed), or
/// initialize it with write(). The wrapper takes the module's place, as DistributedDataParallel does. module() is the inner
/// module, whose parameters() are the full parameters: everyone may read them (a state dict of them is a full state dict), and
/// nobody may write them: a write ends in SIGSEGV.
///
/// Wrap inner modules too, before the outer one: each call makes one group of the parameters that no inner call has taken. If
/// ranks share memory, this changes neither speed nor memory. Otherwise the parameters of a group are gathered when its forward
/// begins and freed when it ends: a single call on the outermost module would gather the whole model at once. So a block must be
/// called through its wrapper:
///
///     struct Net : torch::nn::Module {
///       Net() { block = register_module("block", cohort::fully_shard(Block())); }
///       at::Tensor forward(at::Tensor x) { return block(x); }
///       cohort::FullySharded<BlockImpl> block{nullptr};
///     };
///
/// Semantics, names and error texts follow torch/distributed/fsdp/_fully_shard/_fully_shard.py; differences: docs/parity.md.
/// Collective: construction, forward, backward, unshard(), write(). Thread-safety: as torch::nn::Module.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/parallel/fsdp/pass_arguments.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort {

namespace fsdp {

namespace detail {

/// The wrapper without forward.
template <class Net>
class ShardedNet : public parallel::WrapperBase<Net>, public ShardedModule {
 public:
  ShardedNet(std::shared_ptr<Net> net, const Options& options)
      : parallel::WrapperBase<Net>("FullySharded", std::move(net)), ShardedModule(this->module(), options) {}
  ShardedNet(std::shared_ptr<Net> net, ModuleShare share)
      : parallel::WrapperBase<Net>("FullySharded", std::move(net)), ShardedModule(this->module(), std::move(share)) {}

  /// For optimizers: this rank's shards, each once, and the parameters that fully_shard was told to ignore.
  std::vector<at::Tensor> parameters(bool recurse = true) const { return this->named_parameters(recurse).values(); }
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const {
    return this->named_shards(recurse);
  }
  void zero_grad(bool set_to_none = true) override {
    for (auto& parameter : parameters()) {
      if (set_to_none) {
        parameter.mutable_grad().reset();
      } else if (parameter.grad().defined()) {
        parameter.mutable_grad().detach_().zero_();
      }
    }
  }
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& = std::nullopt) const override {
    TORCH_CHECK(false, "FSDP does not support deepcopy. Please use state dict for serialization.");
  }

  /// Runs the inner module's forward.
  template <class... Arguments>
  auto call(Arguments&&... arguments) {
    return run([this](auto&&... each) { return this->module().forward(std::forward<decltype(each)>(each)...); },
               std::forward<Arguments>(arguments)...);
  }
  /// Treats `method` as forward, as register_fsdp_forward_method does: model->forward_method(&NetImpl::encode, x).
  template <class Method, class... Arguments>
  auto forward_method(Method method, Arguments&&... arguments) {
    return run(
        [&](auto&&... each) { return std::invoke(method, this->module(), std::forward<decltype(each)>(each)...); },
        std::forward<Arguments>(arguments)...);
  }

 private:
  template <class Function, class... Arguments>
  auto run(Function function, Arguments&&... arguments) {
    using Result = std::decay_t<decltype(function(std::forward<Arguments>(arguments)...))>;
    ModuleForward pass(this->share());
    const auto exchange = [&](std::vector<at::Tensor> tensors) { return pass.inputs(std::move(tensors)); };
    if constexpr (std::is_void_v<Result>) {
      with_exchanged_tensors(function, exchange, std::forward<Arguments>(arguments)...);
    } else {
      const bool is_plain = !this->share().sharding->follows_passes() && !this->sharding().mp_policy().param_dtype;
      if (is_plain) return cast(Result(function(std::forward<Arguments>(arguments)...)));
      Result result = with_exchanged_tensors(function, exchange, std::forward<Arguments>(arguments)...);
      std::vector<at::Tensor> outputs;
      parallel::collect_tensors(result, outputs);
      pass.outputs(outputs);
      return cast(std::move(result));
    }
  }

  template <class Result>
  Result cast(Result result) {
    const auto& dtype = this->sharding().mp_policy().output_dtype;
    using parallel::move_tensors;
    return dtype ? move_tensors(std::move(result), *dtype) : result;
  }
};

}  // namespace detail
}  // namespace fsdp

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class FullyShardedImpl final : public parallel::WrapperWithForward<fsdp::detail::ShardedNet<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<fsdp::detail::ShardedNet<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class FullySharded : public parallel::WrapperHolder<FullyShardedImpl<Net, Signature>, Net> {
  using Impl = FullyShardedImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  /// Collective. Throws as fsdp::Sharding's constructor.
  explicit FullySharded(std::shared_ptr<Net> net, const fsdp::Options& options = {})
      : Holder(std::make_shared<Impl>(std::move(net), options)) {}
  /// Throws c10::ValueError if no std::shared_ptr owns the module.
  explicit FullySharded(std::type_identity_t<Net>& net, const fsdp::Options& options = {})
      : FullySharded(parallel::owner_of(net, "FullySharded"), options) {}
  /// Wraps one of several modules whose parameters have been sharded together.
  FullySharded(std::shared_ptr<Net> net, fsdp::ModuleShare share)
      : Holder(std::make_shared<Impl>(std::move(net), std::move(share))) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit FullySharded(const Wrapped& holder, const fsdp::Options& options = {})
      : FullySharded(holder.ptr(), options) {}
};

template <class Net>
FullySharded(std::shared_ptr<Net>, fsdp::Options = {}) -> FullySharded<Net>;
template <class Net>
FullySharded(std::shared_ptr<Net>, fsdp::ModuleShare) -> FullySharded<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> FullySharded(Net&, fsdp::Options = {})
->FullySharded<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
FullySharded(const Wrapped&, fsdp::Options = {})->FullySharded<typename Wrapped::ContainedType>;

namespace fsdp::detail {

template <class Net>
auto pointer_to(Net& net) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
    return parallel::owner_of(net, "FullySharded");
  } else if constexpr (requires { net.ptr(); }) {
    return net.ptr();
  } else {
    return net;
  }
}

inline std::shared_ptr<ModuleSharding> shard_together(const std::vector<torch::nn::Module*>& modules,
                                                      const Options& options) {
  return std::make_shared<ModuleSharding>(modules, options);
}

template <class List>
auto wrap_list(const List& nets, const Options& options) {
  std::vector<torch::nn::Module*> modules;
  for (const auto& net : nets) modules.push_back(&*pointer_to(net));
  const auto sharding = shard_together(modules, options);
  std::vector<decltype(FullySharded(pointer_to(nets.front()), ModuleShare()))> result;
  for (const auto& net : nets) result.emplace_back(pointer_to(net), ModuleShare{sharding, result.size()});
  return result;
}
template <class... Nets>
auto wrap_tuple(const std::tuple<Nets...>& nets, const Options& options) {
  return std::apply(
      [&](const auto&... each) {
        const auto sharding = shard_together({&*pointer_to(each)...}, options);
        size_t module = 0;
        return std::tuple{FullySharded(pointer_to(each), ModuleShare{sharding, module++})...};
      },
      nets);
}

template <class T>
struct IsTuple : std::false_type {};
template <class... Each>
struct IsTuple<std::tuple<Each...>> : std::true_type {};
template <class T>
struct IsList : std::false_type {};
template <class Each>
struct IsList<std::vector<Each>> : std::true_type {};

}  // namespace fsdp::detail

/// As PyTorch's, but returns the wrapper, since C++ modules have no hooks. `net`: a holder, a module that a std::shared_ptr owns,
/// or that std::shared_ptr. A std::vector or std::tuple of holders or pointers: modules whose parameters make one group, which is
/// gathered before the first of them runs and freed after the last; none of them can be the root. Returns the wrapper, or a list
/// or tuple of wrappers.
///
///     auto [norm, head] = cohort::fully_shard(std::tuple(layer_norm, linear));
template <class Net>
auto fully_shard(Net&& net, const fsdp::Options& options = {}) {
  using T = std::remove_cvref_t<Net>;
  if constexpr (fsdp::detail::IsTuple<T>::value) {
    return fsdp::detail::wrap_tuple(net, options);
  } else if constexpr (fsdp::detail::IsList<T>::value) {
    return fsdp::detail::wrap_list(net, options);
  } else {
    return FullySharded(std::forward<Net>(net), options);
  }
}

}  // namespace cohort
