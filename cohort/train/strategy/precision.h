/// Precision: the number formats of a step, and their consequences for backward, clipping and the optimizer's step.
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
  /// `name`: "32", "bf16-mixed", "16-mixed" or "bf16". `stages`: the ranks of a pipeline, which skip steps together; null without
  /// a pipeline. Throws c10::ValueError for other names.
  Precision(const std::string& name, c10::Device device, const Group& stages = {});

  /// Enables autocast on this thread while the result lives, if the precision is a mixed one.
  std::optional<Autocast> autocast() const;

  /// Converts floating-point parameters and buffers to bfloat16 with "bf16". Call it before the strategy wraps the model. Throws
  /// c10::ValueError if fully_shard or DistributedDataParallel already have parameters of another dtype.
  void convert(torch::nn::Module& net) const;
  /// Converts a floating-point input to bfloat16 with "bf16".
  at::Tensor input(const at::Tensor& tensor) const;
  /// Converts 16-bit outputs of the model to float32 with a mixed precision, as losses are computed without autocast.
  at::Tensor output(const at::Tensor& tensor) const;

  void backward(const at::Tensor& loss);
  /// Removes the scale from the gradients. Call it before reading them, once per step.
  void unscale(torch::optim::Optimizer& optimizer);
  /// Returns false if the step was skipped because gradients were not finite with the current scale.
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
