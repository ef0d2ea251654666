/// Precision: in which numbers a step computes, and what that means for backward, clipping and the optimizer's step.
///
/// Collective where GradScaler and clip_grad_norm_ are. Thread-safety: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/optim/grad_scaler.h"
#include "cohort/parallel/precision/autocast.h"

namespace torch::optim {
class Optimizer;
}

namespace cohort::train {

class COHORT_API Precision {
 public:
  /// "32", "bf16-mixed", "16-mixed" or "bf16". `stages`: the ranks of a pipeline, which leave out steps together; null: there is
  /// none. Throws c10::ValueError for other names.
  Precision(const std::string& name, c10::Device device, const Group& stages = {});

  /// While it lives, this thread computes in autocast, if that is what the precision means.
  std::optional<Autocast> autocast() const;

  /// Before the strategy: with "bf16" parameters and buffers of floating point become bfloat16. Throws c10::ValueError where
  /// fully_shard or DistributedDataParallel have others already.
  void convert(torch::nn::Module& net) const;
  /// With "bf16" a floating-point input becomes bfloat16.
  at::Tensor input(const at::Tensor& tensor) const;
  /// With a mixed precision what the model gives in 16 bits becomes float32, for losses that are computed without autocast.
  at::Tensor output(const at::Tensor& tensor) const;

  void backward(const at::Tensor& loss);
  /// Gradients become what they are without a scale. Call it before they are looked at, once per step.
  void unscale(torch::optim::Optimizer& optimizer);
  /// Returns false where the step was left out, as gradients were not finite with this scale.
  bool step(torch::optim::Optimizer& optimizer);
  bool scales() const { return scaler_.has_value(); }
  double scale() const { return scaler_ ? scaler_->get_scale() : 1.0; }
  amp::GradScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  c10::Device device_;
  std::optional<at::ScalarType> autocast_dtype_;
  bool is_pure_ = false;
  std::optional<amp::GradScaler> scaler_;
};

}  // namespace cohort::train
