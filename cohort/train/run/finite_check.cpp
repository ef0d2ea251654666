#include "cohort/train/run/finite_check.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace cohort::train::detail {
namespace {

bool can_be_bad(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_sparse() && (tensor.is_floating_point() || tensor.is_complex());
}

// Passes once over the memory. A sum of finite numbers may overflow; the exact count finds that out.
bool is_finite(const at::Tensor& tensor) {
  if (!can_be_bad(tensor) || tensor.numel() == 0) return true;
  if (std::isfinite(at::real(tensor.detach()).sum(at::kDouble).item<double>())) return true;
  return at::isfinite(tensor.detach()).all().item<bool>();
}

// "holds nan or infinity in 3 of 64 elements"
std::string bad_elements(const at::Tensor& tensor) {
  const int64_t bad = tensor.numel() - at::isfinite(tensor.detach()).sum().item<int64_t>();
  return c10::str("holds nan or infinity in ", bad, " of ", tensor.numel(),
                  tensor.numel() == 1 ? " element" : " elements");
}

std::string place_of(const CheckedStep& step) {
  return c10::str("step ", step.step, " (epoch ", step.epoch, ", batch ", step.batch, ") on rank ", step.rank);
}

}  // namespace

void check_loss(const at::Tensor& loss, const CheckedStep& step, const NamedTensors& tensors) {
  const double value = loss.detach().item<double>();
  if (std::isfinite(value)) return;
  const at::NoGradGuard no_grad;
  std::string first = "data, parameters and the model's output are finite: it is the loss itself";
  for (const auto& [name, tensor] : tensors) {
    if (is_finite(tensor)) continue;
    first = c10::str("the first tensor that is not finite is ", name, ", which ", bad_elements(tensor));
    break;
  }
  TORCH_CHECK(false, "[cohort] Trainer: the loss is ",
              std::isnan(value) ? "nan"
              : value > 0.0     ? "inf"
                                : "-inf",
              " in ", place_of(step), "\n  ", first,
              "\n  hint: lower the learning rate, set gradient_clip_norm, or check the data; finite_check = "
              "FiniteCheck::kNone turns this check off");
}

void check_gradients(const NamedTensors& parameters, const CheckedStep& step) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    const auto& gradient = parameter.grad();
    if (is_finite(gradient)) continue;
    TORCH_CHECK(false, "[cohort] Trainer: gradients are not finite in ", place_of(step),
                "\n  the first one is the gradient of \"", name, "\", which ", bad_elements(gradient),
                "\n  hint: lower the learning rate, or check the loss function; finite_check = FiniteCheck::kLoss does "
                "not check gradients");
  }
}

}  // namespace cohort::train::detail
