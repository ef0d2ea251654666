/// The common base of modules that wrap another one, whatever the strategy: names, state, containers, the signature of forward.
///
/// A strategy stacks three classes; parallel/ddp/distributed_data_parallel.h is the example:
///
///     template <class Net>                                       // 1. the strategy, still without forward
///     class Sharded : public WrapperBase<Net> {
///      public:
///       Sharded(std::shared_ptr<Net> net, Options options);      //    WrapperBase<Net>("Sharded", std::move(net))
///       template <class... Arguments>
///       decltype(auto) call(Arguments&&... arguments);           //    runs this->module().forward(...) its own way
///     };
///     template <class Net, class Signature = ForwardSignature<Net>>   // 2. forward, with the inner module's signature
///     class FullyShardedImpl final : public WrapperWithForward<Sharded<Net>, Net, Signature> { ... };
///     template <class Net, class Signature = ForwardSignature<Net>>   // 3. what users hold and call
///     class FullySharded : public WrapperHolder<FullyShardedImpl<Net, Signature>, Net> { ... };
///
/// All wrappers guarantee:
/// - The wrapper takes the module's place: in Sequential, ModuleList and AnyModule, default arguments included.
/// - Its registry holds the inner module's own parameters, buffers and children, so that no name has a prefix. Entries are read
///   at construction: a strategy that replaces parameters does so before, in the inner module.
/// - `wrapper(x)` and `wrapper->forward(x)` run forward under the strategy. `wrapper->module()` is the inner module, and its
///   forward bypasses the strategy. The wrapper has no operator-> to the module.
/// - train, eval, save and load act on the inner module; archives whose keys begin with "module.", as Python's wrappers write
///   them, load too. The wrapper cannot be cloned, since a strategy's state belongs to a process group.
/// Thread-safety: as torch::nn::Module.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/module/signature.h"

namespace cohort::parallel {

/// Reaches the protected virtual functions through which LibTorch asks a module for the default arguments of its forward.
struct DefaultArguments : torch::nn::Module {
  static bool has(torch::nn::Module& module) { return (module.*&DefaultArguments::_forward_has_default_args)(); }
  static unsigned int num_required(torch::nn::Module& module) {
    return (module.*&DefaultArguments::_forward_num_required_args)();
  }
  static std::vector<torch::nn::AnyValue> populate(torch::nn::Module& module,
                                                   std::vector<torch::nn::AnyValue>&& arguments) {
    return (module.*&DefaultArguments::_forward_populate_default_args)(std::move(arguments));
  }
};

/// Returns the owner of a module that is to be wrapped. `wrapper`: the wrapper's name for users. Throws c10::ValueError if no
/// std::shared_ptr owns the module.
template <class Net>
std::shared_ptr<Net> owner_of(Net& net, const char* wrapper) {
  auto owner = std::dynamic_pointer_cast<Net>(net.weak_from_this().lock());
  TORCH_CHECK_VALUE(owner, "[cohort] ", wrapper,
                    " keeps the module that it wraps alive, but no std::shared_ptr owns this one; make it with "
                    "std::make_shared, or with its holder, such as torch::nn::Linear");
  return owner;
}

template <class Net>
class WrapperBase : public torch::nn::Module {
 public:
  /// `name`: the wrapper's name for users, in messages and when it is printed. Requires that `net` is set.
  WrapperBase(std::string name, std::shared_ptr<Net> net) : torch::nn::Module(std::move(name)), net_(std::move(net)) {
    torch::nn::Module::train(net_->is_training());  // before there are children, which keep a mode of their own
    for (const auto& entry : net_->named_parameters(/*recurse=*/false)) {
      register_parameter(entry.key(), entry.value(), entry.value().requires_grad());
    }
    for (const auto& entry : net_->named_buffers(/*recurse=*/false)) register_buffer(entry.key(), entry.value());
    for (const auto& entry : net_->named_children()) register_module(entry.key(), entry.value());
  }

  /// The inner module. Its forward bypasses the strategy.
  Net& module() { return *net_; }
  const Net& module() const { return *net_; }

  void train(bool on = true) override {
    net_->train(on);
    torch::nn::Module::train(on);
  }
  void save(torch::serialize::OutputArchive& archive) const override { net_->save(archive); }
  void load(torch::serialize::InputArchive& archive) override {
    torch::serialize::InputArchive prefixed;
    const bool has_prefix = !net_->named_children().contains("module") && archive.try_read("module", prefixed);
    net_->load(has_prefix ? prefixed : archive);
  }
  void pretty_print(std::ostream& stream) const override {
    stream << name() << "(";
    net_->pretty_print(stream);
    stream << ")";
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& = std::nullopt) const override {
    TORCH_CHECK(false, "[cohort] ", name(), " cannot be cloned; clone the inner module() and wrap the copy");
  }

 protected:
  template <typename ModuleType, typename... ArgumentTypes>
  friend struct torch::nn::AnyModuleHolder;
  bool _forward_has_default_args() override { return DefaultArguments::has(*net_); }
  unsigned int _forward_num_required_args() override { return DefaultArguments::num_required(*net_); }
  std::vector<torch::nn::AnyValue> _forward_populate_default_args(
      std::vector<torch::nn::AnyValue>&& arguments) override {
    return DefaultArguments::populate(*net_, std::move(arguments));
  }

 private:
  std::shared_ptr<Net> net_;
};

/// Adds forward to `Strategy`: with the type `Signature`, as containers need it, or as a template for NoSignature.
template <class Strategy, class Net, class Signature>
class WrapperWithForward;

template <class Strategy, class Net, class Return, class... Arguments>
class WrapperWithForward<Strategy, Net, Return(Arguments...)> : public Strategy {
 public:
  using Strategy::Strategy;
  std::decay_t<Return> forward(Arguments... arguments) { return this->call(std::forward<Arguments>(arguments)...); }
};

template <class Strategy, class Net>
class WrapperWithForward<Strategy, Net, NoSignature> : public Strategy {
 public:
  using Strategy::Strategy;
  template <class... Arguments>
  auto forward(Arguments&&... arguments)
      -> std::decay_t<decltype(std::declval<Net&>().forward(std::forward<Arguments>(arguments)...))> {
    return this->call(std::forward<Arguments>(arguments)...);
  }
};

/// LibTorch's holder, which can be called like the inner module. Each wrapper's holder takes these constructors, so that
/// register_module's result can be assigned to it, and adds those that wrap a module.
template <class Impl, class Net>
class WrapperHolder : public torch::nn::ModuleHolder<Impl> {
 public:
  /*implicit*/ WrapperHolder(std::shared_ptr<Impl> impl) : torch::nn::ModuleHolder<Impl>(std::move(impl)) {}
  /*implicit*/ WrapperHolder(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}

  /// Takes the arguments of the inner forward, default arguments included.
  template <class... Arguments>
  requires requires(Net& net, Arguments&&... arguments) { net.forward(std::forward<Arguments>(arguments)...); }
  auto operator()(Arguments&&... arguments) { return this->ptr()->call(std::forward<Arguments>(arguments)...); }
};

}  // namespace cohort::parallel
