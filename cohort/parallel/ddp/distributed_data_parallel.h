/// DistributedDataParallel<Net>: trains one replica of a module per rank and keeps them equal.
///
///     auto net = Net();                                        // any torch::nn module
///     cohort::DistributedDataParallel ddp(net);                // or (net, {.find_unused_parameters = true})
///     torch::optim::SGD optimizer(ddp->parameters(), 0.01);
///     loss_fn(ddp(input), target).backward();                  // gradients are averaged when it returns
///     optimizer.step();
///
/// `ddp(x)` and `ddp->forward(x)` run forward under DDP; only `ddp->module()` reaches the inner module. The wrapper fits
/// where the module fits: Sequential, ModuleList, AnyModule. Parameter names and state-dict keys are the inner module's;
/// archives whose keys begin with "module." (as Python's DDP writes them) load too.
///
/// The signature of forward is deduced. Where forward is overloaded or a template, `ddp(x)` still works, and the signature
/// is given for containers: DistributedDataParallel<Net, at::Tensor(at::Tensor)>.
///
/// Semantics, defaults and error texts follow torch/nn/parallel/distributed.py. Differences are listed in docs/parity.md.
/// Collective: construction, forward and backward. Thread-safety: as torch::nn::Module.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/tensor_tree.h"

namespace cohort {

namespace ddp {

/// While it lives, forward passes leave gradients local: they accumulate until a synchronised step reduces their sum.
class NoSync {
 public:
  explicit NoSync(Replica& replica) : replica_(&replica), previous_(replica.synchronises_gradients()) {
    replica_->set_synchronises_gradients(false);
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { replica_->set_synchronises_gradients(previous_); }

 private:
  Replica* replica_;
  bool previous_;
};

namespace detail {

/// Reaches the protected virtuals with which LibTorch asks a module for the default arguments of its forward.
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

/// The wrapper without forward. Its registry holds the inner module's own entries, so that no name has a prefix.
template <class Net>
class WrapperBase : public torch::nn::Module {
 public:
  WrapperBase(std::shared_ptr<Net> net, Options options)
      : torch::nn::Module("DistributedDataParallel"), net_(std::move(net)), replica_(*net_, std::move(options)) {
    for (const auto& entry : net_->named_parameters(/*recurse=*/false)) {
      register_parameter(entry.key(), entry.value(), entry.value().requires_grad());
    }
    for (const auto& entry : net_->named_buffers(/*recurse=*/false)) register_buffer(entry.key(), entry.value());
    for (const auto& entry : net_->named_children()) register_module(entry.key(), entry.value());
    torch::nn::Module::train(net_->is_training());
  }

  /// The inner module. Running its forward bypasses DDP.
  Net& module() { return *net_; }
  const Net& module() const { return *net_; }

  /// `{ auto local = ddp->no_sync(); ddp(x).backward(); }`
  [[nodiscard]] NoSync no_sync() { return NoSync(replica_); }
  Reducer& reducer() { return replica_.reducer(); }

  /// Runs the inner module's forward under DDP.
  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    replica_.before_forward();
    const auto device = replica_.input_device();
    auto result = device ? net_->forward(move_tensors(std::decay_t<Arguments>(arguments), *device)...)
                         : net_->forward(std::forward<Arguments>(arguments)...);
    if (replica_.output_device()) result = move_tensors(std::move(result), *replica_.output_device());
    std::vector<at::Tensor> outputs;
    if (replica_.options().find_unused_parameters) collect_tensors(result, outputs);
    replica_.after_forward(outputs);
    return result;
  }

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
    stream << "DistributedDataParallel(";
    net_->pretty_print(stream);
    stream << ")";
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& = std::nullopt) const override {
    TORCH_CHECK(false, "DistributedDataParallel cannot be cloned; clone the inner module() and wrap the copy");
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
  Replica replica_;
};

}  // namespace detail
}  // namespace ddp

template <class Net, class Signature = typename ddp::detail::ForwardSignature<Net>::type>
class DistributedDataParallelImpl;

template <class Net, class Return, class... Arguments>
class DistributedDataParallelImpl<Net, Return(Arguments...)> final : public ddp::detail::WrapperBase<Net> {
 public:
  using ddp::detail::WrapperBase<Net>::WrapperBase;
  std::decay_t<Return> forward(Arguments... arguments) { return this->call(std::forward<Arguments>(arguments)...); }
};

template <class Net>
class DistributedDataParallelImpl<Net, ddp::detail::NoSignature> final : public ddp::detail::WrapperBase<Net> {
 public:
  using ddp::detail::WrapperBase<Net>::WrapperBase;
  template <class... Arguments>
  auto forward(Arguments&&... arguments)
      -> std::decay_t<decltype(std::declval<Net&>().forward(std::forward<Arguments>(arguments)...))> {
    return this->call(std::forward<Arguments>(arguments)...);
  }
};

template <class Net, class Signature = typename ddp::detail::ForwardSignature<Net>::type>
class DistributedDataParallel : public torch::nn::ModuleHolder<DistributedDataParallelImpl<Net, Signature>> {
  using Impl = DistributedDataParallelImpl<Net, Signature>;
  using Holder = torch::nn::ModuleHolder<Impl>;

 public:
  /// Collective. Verifies that all ranks hold the same parameters and broadcasts rank 0's parameters and buffers.
  /// Throws c10::Error when no parameter requires a gradient or the ranks differ (PyTorch's texts, naming rank and
  /// parameter), c10::ValueError for devices that do not fit.
  explicit DistributedDataParallel(std::shared_ptr<Net> net, ddp::Options options = {})
      : Holder(std::make_shared<Impl>(std::move(net), std::move(options))) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit DistributedDataParallel(const Wrapped& holder, ddp::Options options = {})
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}
  /*implicit*/ DistributedDataParallel(std::nullptr_t) : Holder(nullptr) {}

  /// Takes what the inner forward takes, default arguments included.
  template <class... Arguments>
  requires requires(Net& net, Arguments&&... arguments) { net.forward(std::forward<Arguments>(arguments)...); }
  auto operator()(Arguments&&... arguments) { return this->ptr()->call(std::forward<Arguments>(arguments)...); }
};

template <class Net>
DistributedDataParallel(std::shared_ptr<Net>, ddp::Options = {}) -> DistributedDataParallel<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
DistributedDataParallel(const Wrapped&, ddp::Options = {})->DistributedDataParallel<typename Wrapped::ContainedType>;

}  // namespace cohort
