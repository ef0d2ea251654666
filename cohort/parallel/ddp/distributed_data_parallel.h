/// DistributedDataParallel<Net>: trains one replica of a module per rank and keeps them equal.
///
///     auto net = Net();                                        // any torch::nn module
///     cohort::DistributedDataParallel ddp(net);                // or (*net), or (net, {.find_unused_parameters = true})
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

template <class Net>
std::shared_ptr<Net> owner_of(Net& net) {
  auto owner = std::dynamic_pointer_cast<Net>(net.weak_from_this().lock());
  TORCH_CHECK_VALUE(
      owner,
      "DistributedDataParallel keeps the module that it wraps alive, but no std::shared_ptr owns this one; make "
      "it by std::make_shared, or by its holder, such as torch::nn::Linear");
  return owner;
}

/// The wrapper without forward.
template <class Net>
class ReplicatedModule : public parallel::WrapperBase<Net> {
 public:
  ReplicatedModule(std::shared_ptr<Net> net, Options options)
      : parallel::WrapperBase<Net>("DistributedDataParallel", std::move(net)),
        replica_(this->module(), std::move(options)) {}

  /// `{ auto local = ddp->no_sync(); ddp(x).backward(); }`
  [[nodiscard]] NoSync no_sync() { return NoSync(replica_); }
  Reducer& reducer() { return replica_.reducer(); }

  /// Runs the inner module's forward under DDP.
  template <class... Arguments>
  decltype(auto) call(Arguments&&... arguments) {
    using parallel::move_tensors;
    replica_.before_forward();
    const auto device = replica_.input_device();
    auto result = device ? this->module().forward(move_tensors(std::decay_t<Arguments>(arguments), *device)...)
                         : this->module().forward(std::forward<Arguments>(arguments)...);
    if (replica_.output_device()) result = move_tensors(std::move(result), *replica_.output_device());
    std::vector<at::Tensor> outputs;
    if (replica_.options().find_unused_parameters) parallel::collect_tensors(result, outputs);
    replica_.after_forward(outputs);
    return result;
  }

 private:
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
  /// Collective. Verifies that all ranks hold the same parameters and broadcasts rank 0's parameters and buffers.
  /// Throws c10::Error when no parameter requires a gradient or the ranks differ (PyTorch's texts, naming rank and
  /// parameter), c10::ValueError for devices that do not fit.
  explicit DistributedDataParallel(std::shared_ptr<Net> net, ddp::Options options = {})
      : Holder(std::make_shared<Impl>(std::move(net), std::move(options))) {}
  /// Throws c10::ValueError for a module that no std::shared_ptr owns.
  explicit DistributedDataParallel(std::type_identity_t<Net>& net, ddp::Options options = {})
      : DistributedDataParallel(ddp::detail::owner_of(net), std::move(options)) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit DistributedDataParallel(const Wrapped& holder, ddp::Options options = {})
      : DistributedDataParallel(holder.ptr(), std::move(options)) {}
  /*implicit*/ DistributedDataParallel(std::nullptr_t) : Holder(nullptr) {}
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
