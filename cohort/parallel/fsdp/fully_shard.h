/// fully_shard: trains one model on several ranks, each of which owns a part of its parameters, gradients and optimizer state
/// (FSDP2). Where the ranks share memory, the whole parameters are there once per host, and nothing is gathered.
///
///     auto net = Net();                                        // any torch::nn module
///     auto model = cohort::fully_shard(net);
///     torch::optim::AdamW optimizer(model->parameters());      // this rank's shards, never net->parameters()
///     loss_fn(model(input), target).backward();                // shards get averaged gradients when it returns
///     cohort::nn::utils::clip_grad_norm_(model->parameters(), 1.0);   // the norm of all ranks' shards
///     optimizer.step();
///
/// As in PyTorch each rank's shards begin with the rank's own values: let all ranks make the same model (one seed), or initialise
/// it with write(). The wrapper stands where the module stood, as DistributedDataParallel's does; only module() reaches the
/// inner one, whose parameters() are the whole parameters: everyone may read them (a state dict of them is a full one), and
/// nobody may write them: that is SIGSEGV.
///
/// Inner modules may be wrapped, too, before the outer one: each call makes one group of the parameters that inner ones have not.
/// Where ranks share memory that changes nothing in speed or memory.
///
/// Semantics, names and error texts follow torch/distributed/fsdp/_fully_shard/_fully_shard.py; differences: docs/parity.md.
/// Collective: construction, backward, a forward after a backward, write(). Thread-safety: as torch::nn::Module.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/fsdp/sharding.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort {

namespace fsdp {

/// What an outer module finds inner ones by, whatever the type of their modules.
class COHORT_API ShardedModule {
 public:
  /// Shards what `module` has and inner ones of it have not. `module` must outlive this.
  ShardedModule(torch::nn::Module& module, const Options& options);
  virtual ~ShardedModule();

  Sharding& sharding() { return sharding_; }

  /// By its own name each of the module's parameters, once: as this rank's shard, if it has been sharded.
  torch::OrderedDict<std::string, at::Tensor> named_shards(bool recurse) const;
  /// Of this call alone, or, with `recurse`, of nested ones, too.
  void set_requires_gradient_sync(bool value, bool recurse = true);
  void set_gradient_divide_factor(double factor) { sharding_.set_gradient_divide_factor(factor); }
  /// Sharding::write, nested ones included, by the names that the parameters have here.
  void write(const Writer& writer);

 private:
  std::vector<Sharding*> nested() const;

  torch::nn::Module& module_;
  Sharding sharding_;
};

/// While it lives, backward leaves gradients whole and on their rank.
class NoSync {
 public:
  explicit NoSync(ShardedModule& module) : module_(&module) { module_->set_requires_gradient_sync(false); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { module_->set_requires_gradient_sync(true); }

 private:
  ShardedModule* module_;
};

namespace detail {

/// The wrapper without forward.
template <class Net>
class ShardedNet : public parallel::WrapperBase<Net>, public ShardedModule {
 public:
  ShardedNet(std::shared_ptr<Net> net, const Options& options)
      : parallel::WrapperBase<Net>("FullySharded", std::move(net)), ShardedModule(this->module(), options) {}

  /// For optimizers: this rank's shards, each once, and what fully_shard was told to ignore.
  std::vector<at::Tensor> parameters(bool recurse = true) const { return this->named_parameters(recurse).values(); }
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const {
    return this->named_shards(recurse);
  }
  void zero_grad(bool set_to_none = true) {
    for (auto& parameter : parameters()) {
      if (set_to_none) {
        parameter.mutable_grad().reset();
      } else if (parameter.grad().defined()) {
        parameter.mutable_grad().detach_().zero_();
      }
    }
  }
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    const auto pass = this->sharding().forward();
    return this->module().forward(std::forward<Arguments>(arguments)...);
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
  /// Collective. Throws as fsdp::Sharding's constructor.
  explicit FullySharded(std::shared_ptr<Net> net, const fsdp::Options& options = {})
      : Holder(std::make_shared<Impl>(std::move(net), options)) {}
  /// Throws c10::ValueError for a module that no std::shared_ptr owns.
  explicit FullySharded(std::type_identity_t<Net>& net, const fsdp::Options& options = {})
      : FullySharded(parallel::owner_of(net, "FullySharded"), options) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit FullySharded(const Wrapped& holder, const fsdp::Options& options = {})
      : FullySharded(holder.ptr(), options) {}
  /*implicit*/ FullySharded(std::nullptr_t) : Holder(nullptr) {}
};

template <class Net>
FullySharded(std::shared_ptr<Net>, fsdp::Options = {}) -> FullySharded<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> FullySharded(Net&, fsdp::Options = {})
->FullySharded<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
FullySharded(const Wrapped&, fsdp::Options = {})->FullySharded<typename Wrapped::ContainedType>;

/// As PyTorch's, but that it returns the wrapper: C++ modules have no hooks. `net`: a holder, a module that a std::shared_ptr
/// owns, or that std::shared_ptr.
template <class Net>
auto fully_shard(Net&& net, const fsdp::Options& options = {}) {
  return FullySharded(std::forward<Net>(net), options);
}

}  // namespace cohort
