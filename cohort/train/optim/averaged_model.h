/// AveragedModel: a second set of a model's weights that is their exponential moving average (EMA), or the mean of their states
/// (SWA). Has the numbers of torch.optim.swa_utils.AveragedModel, bit by bit, and its state dict: "n_averaged", "module.weight",
/// ...
///
///     cohort::optim::AveragedModel ema(net, {.multi_avg_fn = cohort::optim::get_ema_multi_avg_fn(0.999)});
///     for (...) {
///       optimizer.step();
///       ema->update_parameters(*net);
///     }
///     ema->module().eval();
///     ema(images);
///
/// update_bn computes the statistics of an average's BatchNorm layers. Thread-safety: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/module/signature.h"
#include "cohort/parallel/module/wrapper_base.h"

namespace cohort::optim {

/// Returns the new average of one tensor. `n_averaged`: how many states were averaged before, on the tensor's device.
using AverageFunction =
    std::function<at::Tensor(const at::Tensor& averaged, const at::Tensor& current, const at::Tensor& n_averaged)>;
/// Updates all averages of one device and dtype in place.
using MultiAverageFunction = std::function<void(const std::vector<at::Tensor>& averaged,
                                                const std::vector<at::Tensor>& current, const at::Tensor& n_averaged)>;

/// Return decay * averaged + (1 - decay) * current. They throw c10::ValueError (PyTorch's text) for a decay outside [0, 1].
COHORT_API AverageFunction get_ema_avg_fn(double decay = 0.999);
COHORT_API MultiAverageFunction get_ema_multi_avg_fn(double decay = 0.999);
/// Return the mean of all states.
COHORT_API AverageFunction get_swa_avg_fn();
COHORT_API MultiAverageFunction get_swa_multi_avg_fn();

struct AveragedModelOptions {
  /// The device of the average. Default: the model's.
  std::optional<c10::Device> device = {};
  /// Set at most one of them. Default: the mean.
  AverageFunction avg_fn = {};
  MultiAverageFunction multi_avg_fn = {};
  /// Whether to average buffers, too. Otherwise they are copied from the model.
  bool use_buffers = false;
  /// Another module of the same class, whose values are replaced. Needed if the class is not a torch::nn::Cloneable.
  std::shared_ptr<torch::nn::Module> copy = {};
};

/// The part of an averaged model that does not depend on the model's class.
class COHORT_API AveragedModule : public torch::nn::Module {
 public:
  /// Updates the average with the current weights of `model`. Requires: `model` has the parameters and buffers of the average, in
  /// the same order; it may be wrapped. Averages tensors that occur twice, such as tied weights, once. Throws c10::ValueError for
  /// other models.
  void update_parameters(const torch::nn::Module& model);
  /// int64, on the average's device.
  const at::Tensor& n_averaged() const { return n_averaged_; }

 protected:
  AveragedModule(const torch::nn::Module& model, std::shared_ptr<torch::nn::Module> copy, AveragedModelOptions options);
  /// Returns a clone, without drawing random numbers.
  static std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& model,
                                                     const AveragedModelOptions& options);
  torch::nn::Module& average() const { return *average_; }

 private:
  std::shared_ptr<torch::nn::Module> average_;
  AveragedModelOptions options_;
  at::Tensor n_averaged_;
};

namespace detail {

/// The average without forward.
template <class Net>
class AveragedNet : public AveragedModule {
 public:
  AveragedNet(const Net& model, const AveragedModelOptions& options)
      : AveragedModule(model, clone_of(model, options), options), net_(dynamic_cast<Net*>(&average())) {
    TORCH_CHECK_TYPE(net_, "[cohort] AveragedModel: options.copy is not of the model's class");
  }

  /// Runs the average's forward.
  template <class... Arguments>
  auto call(Arguments&&... arguments)
      -> std::decay_t<decltype(std::declval<Net&>().forward(std::forward<Arguments>(arguments)...))> {
    return net_->forward(std::forward<Arguments>(arguments)...);
  }
  /// The average.
  Net& module() const { return *net_; }

 private:
  Net* net_;
};

}  // namespace detail

template <class Net>
using AveragedModelImpl = parallel::WrapperWithForward<detail::AveragedNet<Net>, Net, parallel::NoSignature>;

template <class Net>
class AveragedModel : public parallel::WrapperHolder<AveragedModelImpl<Net>, Net> {
  using Impl = AveragedModelImpl<Net>;
  using Holder = parallel::WrapperHolder<Impl, Net>;

 public:
  using Holder::Holder;
  /// Begins with `net` as it is now. Throws c10::ValueError if both functions are given, c10::TypeError if `copy` is of another
  /// class, and c10::Error if the model's class is not a torch::nn::Cloneable and no copy is given.
  explicit AveragedModel(const std::shared_ptr<Net>& net, const AveragedModelOptions& options = {})
      : Holder(std::make_shared<Impl>(*net, options)) {}
  template <class Wrapped>
  requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Wrapped>
  explicit AveragedModel(const Wrapped& holder, const AveragedModelOptions& options = {})
      : AveragedModel(holder.ptr(), options) {}
};

template <class Net>
AveragedModel(std::shared_ptr<Net>, AveragedModelOptions = {}) -> AveragedModel<Net>;
template <class Wrapped>
requires requires { typename Wrapped::ContainedType; }
AveragedModel(const Wrapped&, AveragedModelOptions = {})->AveragedModel<typename Wrapped::ContainedType>;

}  // namespace cohort::optim
