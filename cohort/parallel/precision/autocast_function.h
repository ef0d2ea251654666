/// Autocast in functions with a backward of their own (torch::autograd::Function): Python's custom_fwd and custom_bwd.
///
///     struct Solve : torch::autograd::Function<Solve> {
///       static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor a, at::Tensor b) {
///         const auto region = cohort::custom_fwd(ctx, at::kCPU, torch::kFloat);   // autocast is off from here on, and
///         a = region.cast(a), b = region.cast(b);                                 // these are float32
///         ...
///       }
///       static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
///                                                      torch::autograd::variable_list gradients) {
///         const auto region = cohort::custom_bwd(ctx, at::kCPU);                  // autocast as in forward
///         ...
///       }
///     };
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <utility>

#include "cohort/export.h"
#include "cohort/parallel/module/tensor_tree.h"
#include "cohort/parallel/precision/autocast.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace cohort {

class COHORT_API CustomForward {
 public:
  CustomForward(torch::autograd::AutogradContext* context, c10::DeviceType device_type,
                std::optional<c10::ScalarType> cast_inputs);

  /// Converts floating-point tensors of `value` on devices of the type, except float64 ones, to the dtype of cast_inputs; returns
  /// `value` unchanged without cast_inputs, or if forward was not called under autocast. Looks into lists, maps, pairs, tuples
  /// and optionals.
  template <class T>
  T cast(T value) const {
    return target_ ? parallel::move_tensors(std::move(value), *target_) : value;
  }

 private:
  struct Target {
    c10::DeviceType device_type;
    c10::ScalarType dtype;
  };
  friend at::Tensor moved(const at::Tensor& tensor, const Target& target) {
    const bool is_eligible = tensor.is_floating_point() && tensor.device().type() == target.device_type &&
                             tensor.scalar_type() != at::kDouble;
    return is_eligible ? tensor.to(target.dtype) : tensor;
  }

  std::optional<Target> target_;
  std::optional<Autocast> without_;
};

/// Call it first in forward. With `cast_inputs`, and if autocast is on, turns it off until the end of forward, and cast()
/// converts its tensors to this dtype; otherwise forward runs as it is called. Stores in `ctx` the state for backward.
[[nodiscard]] inline CustomForward custom_fwd(torch::autograd::AutogradContext* ctx, c10::DeviceType device_type,
                                              std::optional<c10::ScalarType> cast_inputs = {}) {
  return CustomForward(ctx, device_type, cast_inputs);
}

/// Call it first in backward: restores autocast as it was in forward after custom_fwd. Throws c10::Error if custom_fwd has not
/// been called.
[[nodiscard]] COHORT_API Autocast custom_bwd(torch::autograd::AutogradContext* ctx, c10::DeviceType device_type);

}  // namespace cohort
