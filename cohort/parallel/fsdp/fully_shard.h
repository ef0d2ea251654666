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
/// Inner modules should be wrapped, too, before the outer one: each call makes one group of the parameters that inner ones have
/// not. Where ranks share memory that changes nothing in speed or memory. Elsewhere the parameters of a group are gathered when
/// its forward begins, and let go when it ends: one call on the outermost module alone would gather the whole model at once. So
/// a block must be called through its wrapper:
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

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/fsdp/pass_arguments.h"
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

  // As the functions of FSDPModule with these names; see group_settings.h and sharding.h. `recurse`: nested ones, too.
  void set_requires_gradient_sync(bool value, bool recurse = true);
  void set_requires_all_reduce(bool value, bool recurse = true);
  void set_reshard_after_forward(bool value, bool recurse = true);
  void set_reshard_after_backward(bool value, bool recurse = true);
  void set_reduce_scatter_unused_params(bool value, bool recurse = true);
  void set_separate_reduce_scatter_group(bool enable = true, bool recurse = true);
  void set_reduce_scatter_max_input_buffers(int max_input_buffers) {
    sharding_.set_reduce_scatter_max_input_buffers(max_input_buffers);
  }
  void set_gradient_divide_factor(double factor) { sharding_.set_gradient_divide_factor(factor); }
  void set_force_sum_reduction_for_comms(bool enable) { settings().force_sum_reduction_for_comms = enable; }
  void set_unshard_in_backward(bool value) { settings().unshard_in_backward = value; }
  /// Throws c10::ValueError for a stream where there are replicas: their all-reduce has one; and in one memory, where sums have
  /// a way of their own.
  void set_all_reduce_hook(std::function<void(const at::Tensor& reduce_output)> hook,
                           std::optional<c10::Stream> stream = std::nullopt);
  /// Throw c10::ValueError for null. In one memory there is nothing to gather; for reductions it is an error.
  void set_custom_all_gather(std::shared_ptr<AllGather> comm);
  void set_custom_reduce_scatter(std::shared_ptr<ReduceScatter> comm);
  void set_allocate_memory_from_process_group_for_comm(bool enable);
  void set_modules_to_forward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_modules_to_backward_prefetch(const std::vector<ShardedModule*>& modules);
  void set_is_last_backward(bool value) { sharding_.set_is_last_backward(value); }
  void set_post_optim_event(c10::Event event) { sharding_.set_post_optim_event(std::move(event)); }
  void reset_iter_state() { sharding_.reset_iter_state(); }
  /// Not of nested ones.
  UnshardHandle unshard(bool async_op = false) { return sharding_.unshard(async_op); }
  void reshard() { sharding_.reshard(); }
  /// Sharding::write, nested ones included, by the names that the parameters have here.
  void write(const Writer& writer);

 private:
  friend class NoSync;
  std::vector<Sharding*> nested() const;
  /// Nested ones, if asked for, and this one.
  std::vector<Sharding*> shardings(bool recurse);
  GroupSettings& settings() { return sharding_.settings(); }

  torch::nn::Module& module_;
  Sharding sharding_;
};

/// As share_comm_ctx of PyTorch: several roots, such as the stages of a pipeline, share streams. Before their first forward.
COHORT_API void share_comm_ctx(const std::vector<ShardedModule*>& modules);

/// While it lives, backward leaves gradients whole and on their rank. Afterwards all is as it was before.
class COHORT_API NoSync {
 public:
  explicit NoSync(ShardedModule& module);
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync();

 private:
  struct Before {
    std::weak_ptr<ParamGroup> group;
    bool requires_gradient_sync;
    bool requires_all_reduce;
  };
  std::vector<Before> before_;
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

  /// Runs the inner module's forward.
  template <class... Arguments>
  auto call(Arguments&&... arguments) {
    return run([this](auto&&... each) { return this->module().forward(std::forward<decltype(each)>(each)...); },
               std::forward<Arguments>(arguments)...);
  }
  /// `method` is treated as forward, as by register_fsdp_forward_method: model->forward_method(&NetImpl::encode, x).
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
    auto pass = this->sharding().forward();
    const auto exchange = [&](std::vector<at::Tensor> tensors) { return pass.inputs(std::move(tensors)); };
    if constexpr (std::is_void_v<Result>) {
      with_exchanged_tensors(function, exchange, std::forward<Arguments>(arguments)...);
    } else {
      const bool is_plain = !this->sharding().follows_passes() && !this->sharding().mp_policy().param_dtype;
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
