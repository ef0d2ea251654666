/// Gradient hooks: several callbacks for one parameter's finished gradient.
///
/// Autograd has a single post-accumulate slot per parameter. One multiplexer owns it, so that DDP, fused optimizer steps and
/// sharding can all be notified. Callbacks run in the thread that runs backward, in the order of their registration, each time a
/// gradient has been accumulated into the parameter's grad.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "cohort/export.h"

namespace cohort::parallel {

using GradientCallback = std::function<void(const at::Tensor& parameter)>;

/// Removes its callback when destroyed. Must not be destroyed while backward runs.
class COHORT_API GradientHook {
 public:
  GradientHook() = default;
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) noexcept;
  ~GradientHook();

 private:
  friend COHORT_API GradientHook add_gradient_hook(const at::Tensor&, GradientCallback);
  GradientHook(at::Tensor parameter, int id) : parameter_(std::move(parameter)), id_(id) {}
  void remove();

  at::Tensor parameter_;
  int id_ = 0;
};

/// Requires a leaf that requires a gradient; otherwise, or if something else holds the slot, throws c10::ValueError.
COHORT_API GradientHook add_gradient_hook(const at::Tensor& parameter, GradientCallback callback);

}  // namespace cohort::parallel
