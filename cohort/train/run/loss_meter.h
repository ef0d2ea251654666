/// LossMeter: this rank's losses of the current optimizer step and epoch. Sums stay on the device, so that the host does not wait
/// for it.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cohort::train::detail {

class LossMeter {
 public:
  explicit LossMeter(c10::Device device) : epoch_(at::zeros({2}, at::TensorOptions(at::kDouble).device(device))) {}

  /// [2] float64: the sum of the epoch's losses, each times the number of samples of its batch, and the number of samples.
  const at::Tensor& of_epoch() const { return epoch_; }
  void begin_epoch() { epoch_.zero_(); }
  /// `loss`: the loss of a batch; see loss_number().
  void add(const at::Tensor& loss, int64_t num_samples) {
    const auto samples = static_cast<double>(num_samples);
    step_.push_back(loss);
    epoch_[0] += loss * samples;
    epoch_[1] += samples;
  }

  /// The number of batches since the last step.
  int64_t num_batches() const { return static_cast<int64_t>(step_.size()); }
  /// The mean loss of these batches. Waits for the device.
  double mean_of_step() const {
    double sum = 0.0;
    for (const auto& loss : step_) sum += loss.item<double>();
    return sum / static_cast<double>(step_.size());
  }
  void end_step() { step_.clear(); }

 private:
  at::Tensor epoch_;
  std::vector<at::Tensor> step_;
};

}  // namespace cohort::train::detail
