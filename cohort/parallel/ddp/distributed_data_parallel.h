/// DistributedDataParallel<Net>: trains one replica of a module per rank and keeps them equal.
///
///     auto net = Net();                                        // any torch::nn module
///     cohort::DistributedDataParallel ddp(net);                // or (*net), or (net, {.find_unused_parameters = true})
///     torch::optim::SGD optimizer(ddp->parameters(), 0.01);
///     loss_fn(ddp(input), target).backward();                  // gradients are averaged when it returns
///     optimizer.step();
///
/// `ddp(x)` and `ddp->forward(x)` run forward under DDP; `ddp->module()` is the inner module. The wrapper fits wherever the
/// module fits: Sequential, ModuleList, AnyModule. Parameter names and state-dict keys are the inner module's; archives whose
/// keys begin with "module." (as Python's DDP writes them) load too.
///
/// The signature of forward is deduced. If forward is overloaded or a template, `ddp(x)` still works, and containers need the
/// signature: DistributedDataParallel<Net, at::Tensor(at::Tensor)>.
///
/// Semantics, defaults and error texts follow torch/nn/parallel/distributed.py. Differences are listed in docs/parity.md.
/// Collective: construction, forward and backward. Thread-safety: as torch::nn::Module.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/tensor_tree.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort {

namespace ddp {

/// While it lives, forward passes leave gradients local: they accumulate until a synchronized step reduces their sum.
class NoSync {
 public:
  explicit NoSync(Replica& replica) : replica_(&replica), previous_(replica.requires_gradient_sync()) {
    replica_->set_requires_gradient_sync(false);
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { replica_->set_requires_gradient_sync(previous_); }

 private:
  Replica* replica_;
  bool previous_;
};

namespace detail {

/// The wrapper without forward.
template <class Net>
class ReplicatedModule : public parallel::WrapperBase<Net>, public Replicated {
 public:
  ReplicatedModule(std::shared_ptr<Net> net, Options options)
      : parallel::WrapperBase<Net>("DistributedDataParallel", std::move(net)),
        replica_(this->module(), std::move(options)) {}

  /// `{ auto local = ddp->no_sync(); ddp(x).backward(); }`
  [[nodiscard]] NoSync no_sync() { return NoSync(replica_); }
  Reducer& reducer() { return replica_.reducer(); }

  /// From now on `hook(state, bucket)` reduces the gradients, bucket by bucket: see comm_hook.h, and ddp/hooks/ for ready ones.
  /// Every rank must register the same hook, once, and not while backward runs. Throws c10::Error otherwise.
  template <class State, class Hook>
  void register_comm_hook(State state, Hook hook) {
    reducer().register_comm_hook(std::move(state), std::move(hook));
  }

  /// From now on `hook(state, named_buffers)` synchronizes the buffers, instead of the broadcast from rank 0: see
  /// buffer_comm_hook.h. Every rank must register the same hook.
  template <class State, class Hook>
  void register_buffer_comm_hook(State state, Hook hook,
                                 BufferCommHookLocation location = BufferCommHookLocation::kPostForward) {
    TORCH_CHECK_TYPE(is_callable(hook), "Buffer communication hook must be callable.");
    replica_.register_buffer_comm_hook([state = std::move(state), hook = std::move(hook)](
                                           const NamedBuffers& buffers) mutable { return hook(state, buffers); },
                                       location);
  }

  /// `{ const auto join = ddp->join(); for (...) ... }`: lets ranks have different numbers of batches. See
  /// parallel/module/join.h.
  [[nodiscard]] Join join(const JoinOptions& options = {}) { return Join({replica_}, options); }
  /// For a Join over several wrappers.
  Joinable& joinable() { return replica_; }
  Group group_of_replicas() const override { return replica_.join_process_group(); }
  Replica& replica() override { return replica_; }

  void register_builtin_comm_hook(BuiltinCommHookType comm_hook_type) {
    reducer().register_builtin_comm_hook(comm_hook_type);
  }

  /// From now on loss.backward() also computes the norm of the gradients: see Reducer::track_gradient_norm.
  void track_gradient_norm(double norm_type = 2.0) { replica_.track_gradient_norm(norm_type); }
  at::Tensor gradient_norm() { return reducer().gradient_norm(); }

  /// Averages over another group from now on, for example after ranks were lost: see Reducer::update_process_group.
  void update_process_group(const Group& group) { replica_.update_process_group(group); }
  /// Leaves gradients local from now on.
  void remove_autograd_hooks() { replica_.remove_autograd_hooks(); }

  /// The settings of DDP and the times of its steps under PyTorch's names, and the same as a table: see logging_data.h.
  c10::DDPLoggingData ddp_logging_data() const { return replica_.ddp_logging_data(); }
  void set_ddp_runtime_logging_sample_rate(int64_t sample_rate) {
    replica_.set_ddp_runtime_logging_sample_rate(sample_rate);
  }
  std::string ddp_report() const { return replica_.ddp_report(); }

  /// From now on loss.backward() also updates the parameters: see Reducer::fuse_step.
  void fuse_step(torch::optim::Optimizer& optimizer) { reducer().fuse_step(optimizer); }

  /// Runs the inner module's forward under DDP.
  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    using parallel::move_tensors;
    replica_.before_forward();
    const bool moves_inputs = replica_.input_device() || replica_.input_dtype();
    auto result = moves_inputs ? this->module().forward(moved(std::decay_t<Arguments>(arguments))...)
                               : this->module().forward(std::forward<Arguments>(arguments)...);
    if (replica_.output_device()) result = move_tensors(std::move(result), *replica_.output_device());
    std::vector<at::Tensor> outputs;
    if (replica_.needs_outputs()) parallel::collect_tensors(result, outputs);
    replica_.after_forward(outputs);
    return result;
  }

 private:
  template <class Argument>
  Argument moved(Argument argument) const {
    using parallel::move_tensors;
    const auto device = replica_.input_device();
    const auto dtype = replica_.input_dtype();
    if (device && dtype) return move_tensors(move_tensors(std::move(argument), *device), *dtype);
    if (device) return move_tensors(std::move(argument), *device);
    return dtype ? move_tensors(std::move(argument), *dtype) : std::move(argument);
  }

  Replica replica_;
};

}  // namespace detail
}  // namespace ddp

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class DistributedDataParallelImpl final
    : public parallel::WrapperWithForward<ddp::detail::ReplicatedModule<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<ddp::detail::ReplicatedModule<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class DistributedDataParallel : public parallel::WrapperHolder<DistributedDataParallelImpl<Net, Signature>, Net> {
  using Impl = DistributedDataParallelImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  /// Collective. Verifies that all ranks hold the same parameters and broadcasts rank 0's parameters and buffers.
  /// Throws c10::Error if no parameter requires a gradient or the ranks differ (PyTorch's texts, with rank and parameter), and
  /// c10::ValueError for devices that do not fit.
  explicit DistributedDataParallel(std::shared_ptr<Net> net, ddp::Options options = {})
      : Holder(std::make_shared<Impl>(std::move(net), std::move(options))) {}
  /// Throws c10::ValueError if no std::shared_ptr owns the module.
  explicit DistributedDataParallel(std::type_identity_t<Net>& net, ddp::Options options = {})
      : DistributedDataParallel(parallel::owner_of(net, "DistributedDataParallel"), std::move(options)) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit DistributedDataParallel(const Wrapped& holder, ddp::Options options = {})
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}
};

template <class Net>
DistributedDataParallel(std::shared_ptr<Net>, ddp::Options = {}) -> DistributedDataParallel<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> DistributedDataParallel(Net&, ddp::Options = {})
->DistributedDataParallel<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
DistributedDataParallel(const Wrapped&, ddp::Options = {})->DistributedDataParallel<typename Wrapped::ContainedType>;

}  // namespace cohort
