/// PipelineLoss: the loss of a microbatch, from the last stage's outputs, the target, and a step's loss_kwargs.
///
///     options.loss_fn = cohort::loss_of([](auto& y, auto& target) { return at::mse_loss(y, target); });
///     options.loss_fn = cohort::loss_of([](auto& y, auto& target, auto& weights) {
///       return (weights * (y - target).square()).mean();
///     });  // `weights`: of StepOptions::loss_kwargs
///     options.loss_fn = [](const cohort::TensorList& outputs, const at::Tensor& target) {
///       return at::mse_loss(outputs[0], target);
///     };
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort {

class PipelineLoss;

namespace pipeline::detail {

using LossOfTarget = at::Tensor(const TensorList& outputs, const at::Tensor& target);
using LossOfTargetAndMore = at::Tensor(const TensorList& outputs, const at::Tensor& target,
                                       const TensorList& loss_kwargs);

template <class Function>
concept LossFunction =
    !std::is_same_v<Function, PipelineLoss> && (std::is_convertible_v<Function, std::function<LossOfTarget>> ||
                                                std::is_convertible_v<Function, std::function<LossOfTargetAndMore>>);

/// Throws c10::ValueError: a loss that takes `expected` tensors of loss_kwargs got `actual`.
[[noreturn]] COHORT_API void throw_wrong_loss_kwargs(size_t expected, size_t actual);

/// The number of tensors that `Function` takes: two or more.
template <class Function, class... Tensors>
constexpr size_t num_loss_tensors() {
  if constexpr (std::is_invocable_v<const Function&, const Tensors&...>) {
    return sizeof...(Tensors);
  } else {
    static_assert(sizeof...(Tensors) < 12, "a loss takes an output, a target and, of loss_kwargs, up to ten tensors");
    return num_loss_tensors<Function, at::Tensor, Tensors...>();
  }
}

template <class Function, size_t... I>
at::Tensor call_loss(const Function& function, const at::Tensor& output, const at::Tensor& target,
                     const TensorList& loss_kwargs, std::index_sequence<I...>) {
  return function(output, target, loss_kwargs[I]...);
}

}  // namespace pipeline::detail

class PipelineLoss {
 public:
  using OfTarget = pipeline::detail::LossOfTarget;
  using OfTargetAndMore = pipeline::detail::LossOfTargetAndMore;

  /// No loss, as is an empty std::function.
  PipelineLoss() = default;
  /// `function`: an OfTarget or an OfTargetAndMore.
  template <pipeline::detail::LossFunction Function>
  PipelineLoss(Function function) {
    if constexpr (std::is_convertible_v<Function, std::function<OfTargetAndMore>>) {
      function_ = std::move(function);
    } else {
      take(std::move(function));
    }
  }

  explicit operator bool() const { return static_cast<bool>(function_); }
  /// Throws c10::ValueError for another number of `loss_kwargs` than the function takes.
  at::Tensor operator()(const TensorList& outputs, const at::Tensor& target, const TensorList& loss_kwargs = {}) const {
    return function_(outputs, target, loss_kwargs);
  }

 private:
  void take(std::function<OfTarget> function) {
    if (!function) return;
    function_ = [function = std::move(function)](const TensorList& outputs, const at::Tensor& target,
                                                 const TensorList& loss_kwargs) {
      if (!loss_kwargs.empty()) pipeline::detail::throw_wrong_loss_kwargs(0, loss_kwargs.size());
      return function(outputs, target);
    };
  }

  std::function<OfTargetAndMore> function_;
};

/// Makes a loss of one output: loss_of([](const at::Tensor& output, const at::Tensor& target) { ... }). Further arguments of the
/// function, tensors, are those of StepOptions::loss_kwargs.
template <class Function>
auto loss_of(Function function) {
  constexpr size_t kNumTensors = pipeline::detail::num_loss_tensors<Function, at::Tensor, at::Tensor>();
  if constexpr (kNumTensors == 2) {
    return [function = std::move(function)](const TensorList& outputs, const at::Tensor& target) -> at::Tensor {
      return function(outputs.front(), target);
    };
  } else {
    return [function = std::move(function)](const TensorList& outputs, const at::Tensor& target,
                                            const TensorList& loss_kwargs) -> at::Tensor {
      constexpr size_t kNumMore = kNumTensors - 2;
      if (loss_kwargs.size() != kNumMore) pipeline::detail::throw_wrong_loss_kwargs(kNumMore, loss_kwargs.size());
      return pipeline::detail::call_loss(function, outputs.front(), target, loss_kwargs,
                                         std::make_index_sequence<kNumMore>());
    };
  }
}

}  // namespace cohort
