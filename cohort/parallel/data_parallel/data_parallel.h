/// DataParallel<Net>: runs one batch on several devices of this process, in threads, and trains one module.
///
///     auto net = Net();                                          // on the first of the devices
///     cohort::DataParallel parallel(net);                        // all devices of the accelerator
///     cohort::DataParallel two(net, {at::kCPU, at::kCPU});       // or these: here two replicas on the CPU
///     torch::optim::SGD optimizer(net->parameters(), 0.01);
///     loss_fn(parallel(input), target).backward();               // gradients of all parts add up in net's parameters
///     optimizer.step();
///
/// forward splits the tensors among its arguments into one part per device (scatter_gather.h), gives a replica of the module on
/// each device the present parameters (replicas.h), calls the replicas in threads (parallel_apply.h), and joins their results on
/// the output device. If the batch is shorter than the list of devices, only the first ones work. Without devices (none given and
/// no accelerator) it calls the module as it is; with one device, on that device.
///
/// `parallel(x)` and `parallel->forward(x)` run under DataParallel; `parallel->module()` is the inner module. The wrapper fits
/// wherever the module fits; names and state-dict keys are the inner module's, and archives whose keys begin with "module.", as
/// Python's DataParallel writes them, load too. With several devices the module must be clonable (torch::nn::Cloneable),
/// forward's arguments copyable, and its results tensors in any nesting.
///
/// Semantics and texts follow torch/nn/parallel/data_parallel.py; differences are listed in docs/parity.md. For several
/// processes, which is faster, see ddp/distributed_data_parallel.h. Backward runs in threads like forward.
/// Thread-safety: as torch::nn::Module.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/parallel/data_parallel/gather_log.h"
#include "cohort/parallel/data_parallel/parallel_apply.h"
#include "cohort/parallel/data_parallel/parallel_backward.h"
#include "cohort/parallel/data_parallel/placement.h"
#include "cohort/parallel/data_parallel/replicas.h"
#include "cohort/parallel/data_parallel/scatter_gather.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/tensor_tree.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort {

namespace nn::parallel {
namespace detail {

// Returns the tensors at which backward may run in parallel: on CPUs only.
template <class Net, class Inputs>
std::vector<TensorsOfReplica> ends_of_backward(const std::vector<std::shared_ptr<Net>>& replicas,
                                               const std::vector<Inputs>& parts, const Devices& devices) {
  std::vector<TensorsOfReplica> ends;
  if (!at::GradMode::is_enabled() || devices.size() < 2 || !devices.front().is_cpu()) return ends;
  for (size_t k = 0; k < replicas.size(); ++k) {
    ends.push_back(replicas[k]->parameters());
    cohort::parallel::collect_tensors(parts[k], ends.back());
  }
  return ends;
}

// Runs forward on the replicas that `replicate(devices)` returns. Requires devices.
template <class Net, class Inputs, class Replicate>
auto forward_in_parallel(Net& net, const Inputs& inputs, const Placement& placement, ReplicaThreads& threads,
                         std::shared_ptr<ReplicaThreads> backward_threads, Replicate replicate) {
  check_module_device(net, placement.devices.front());
  std::vector<Inputs> parts{inputs};  // without arguments the first device works alone
  if constexpr (std::tuple_size_v<Inputs> != 0) parts = scatter(inputs, placement.devices, placement.dim);
  if (placement.devices.size() == 1) return forward(net, std::move(parts.front()));
  const Devices used(placement.devices.begin(), placement.devices.begin() + static_cast<int64_t>(parts.size()));
  const auto replicas = replicate(used);
  const auto ends = ends_of_backward(replicas, parts, used);
  auto outputs = parallel_apply(replicas, std::move(parts), used, threads);
  if constexpr (!std::is_void_v<typename OutputFor<Net, Inputs>::type>) {
    GatherLog log;
    auto gathered = gather(outputs, placement.output_device, placement.dim);
    if (!ends.empty()) run_backward_in_parallel(log.tensors(), ends, std::move(backward_threads));
    return gathered;
  }
}

template <class T>
inline constexpr bool kIsTuple = false;
template <class... T>
inline constexpr bool kIsTuple<std::tuple<T...>> = true;

/// The wrapper without forward.
template <class Net>
class ParallelModule : public cohort::parallel::WrapperBase<Net> {
 public:
  ParallelModule(const std::shared_ptr<Net>& net, Placement placement)
      : cohort::parallel::WrapperBase<Net>("DataParallel", net),
        placement_(std::move(placement)),
        replicas_(net, placement_.devices) {
    if (placement_.devices.size() == 1) net->to(placement_.devices.front());
  }

  const Devices& device_ids() const { return placement_.devices; }
  c10::Device output_device() const { return placement_.output_device; }
  int64_t dim() const { return placement_.dim; }
  /// Makes new replicas at the next forward: call it after a change of the module other than of a parameter, a buffer or the
  /// training mode, such as of a plain member, or of a layer's options.
  void forget_replicas() { replicas_.clear(); }

  /// Runs the inner module's forward on the devices.
  template <class... Arguments>
  auto call(Arguments&&... arguments) -> OutputOf<Net, Arguments&&...> {
    if (placement_.devices.empty()) return this->module().forward(std::forward<Arguments>(arguments)...);
    const std::tuple<std::decay_t<Arguments>...> inputs(std::forward<Arguments>(arguments)...);
    return forward_in_parallel(this->module(), inputs, placement_, *threads_, threads_, [&](const Devices& used) {
      return as_type<Net>(replicas_.take(used.size(), !at::GradMode::is_enabled()).modules(), used.size());
    });
  }

 private:
  Placement placement_;
  ReplicaCache replicas_;
  std::shared_ptr<ReplicaThreads> threads_ = std::make_shared<ReplicaThreads>();
};

}  // namespace detail
}  // namespace nn::parallel

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class DataParallelImpl final
    : public parallel::WrapperWithForward<nn::parallel::detail::ParallelModule<Net>, Net, Signature> {
  using Base = parallel::WrapperWithForward<nn::parallel::detail::ParallelModule<Net>, Net, Signature>;

 public:
  using Base::Base;
};

template <class Net, class Signature = parallel::ForwardSignature<Net>>
class DataParallel : public parallel::WrapperHolder<DataParallelImpl<Net, Signature>, Net> {
  using Impl = DataParallelImpl<Net, Signature>;
  using Holder = parallel::WrapperHolder<Impl, Net>;
  using Devices = nn::parallel::Devices;

 public:
  using Holder::Holder;
  /// `device_ids`: if empty, all devices of the accelerator; if one, the module is moved there. `output_device`: if absent, the
  /// first device. `dim`: the dimension along which batches are split and joined.
  /// Throws c10::ValueError for devices of different types. forward throws c10::Error, with PyTorch's text, unless the module is
  /// on the first device; an exception of a replica names the replica and its device.
  explicit DataParallel(std::shared_ptr<Net> net, const Devices& device_ids = {},
                        std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0)
      : Holder(std::make_shared<Impl>(std::move(net), nn::parallel::place(device_ids, output_device, dim))) {}
  /// Throws c10::ValueError if no std::shared_ptr owns the module.
  explicit DataParallel(std::type_identity_t<Net>& net, const Devices& device_ids = {},
                        std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0)
      : DataParallel(parallel::owner_of(net, "DataParallel"), device_ids, output_device, dim) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit DataParallel(const Wrapped& holder, const Devices& device_ids = {},
                        std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0)
      : DataParallel(holder.ptr(), device_ids, output_device, dim) {}
};

template <class Net>
DataParallel(std::shared_ptr<Net>, const nn::parallel::Devices& = {}, std::optional<c10::Device> = std::nullopt,
             int64_t = 0) -> DataParallel<Net>;
template <class Net>
requires std::is_base_of_v<torch::nn::Module, Net> DataParallel(Net&, const nn::parallel::Devices& = {},
                                                                std::optional<c10::Device> = std::nullopt, int64_t = 0)
->DataParallel<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
DataParallel(const Wrapped&, const nn::parallel::Devices& = {}, std::optional<c10::Device> = std::nullopt, int64_t = 0)
    ->DataParallel<typename Wrapped::ContainedType>;

/// The function form: one forward pass of `module` on `device_ids`, with temporary replicas and threads. `inputs`: a tuple of
/// forward's arguments, or its only one.
/// Throws as DataParallel, and c10::Error if no device is given and the machine has no accelerator.
template <class Net, class Inputs>
auto data_parallel(const std::shared_ptr<Net>& module, Inputs inputs, const nn::parallel::Devices& device_ids = {},
                   std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0) {
  if constexpr (!nn::parallel::detail::kIsTuple<Inputs>) {
    return data_parallel(module, std::tuple<Inputs>(std::move(inputs)), device_ids, output_device, dim);
  } else {
    const auto placement = nn::parallel::place(device_ids, output_device, dim);
    TORCH_CHECK(!placement.devices.empty(), "device type could not be determined");
    nn::parallel::ReplicaThreads threads;
    return nn::parallel::detail::forward_in_parallel(
        *module, inputs, placement, threads, std::make_shared<nn::parallel::ReplicaThreads>(),
        [&](const nn::parallel::Devices& used) { return nn::parallel::replicate(module, used); });
  }
}
template <class Wrapped, class Inputs>
requires requires { typename Wrapped::ContainedType; }
auto data_parallel(const Wrapped& module, Inputs inputs, const nn::parallel::Devices& device_ids = {},
                   std::optional<c10::Device> output_device = std::nullopt, int64_t dim = 0) {
  return data_parallel(module.ptr(), std::move(inputs), device_ids, output_device, dim);
}

}  // namespace cohort
