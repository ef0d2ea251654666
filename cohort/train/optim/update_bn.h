/// update_bn: computes the running statistics of a model's BatchNorm layers over a dataset, as torch.optim.swa_utils.update_bn.
/// An average of weights (averaged_model.h) has no other source of them.
///
///     cohort::optim::update_bn(loader, ema);
///
/// Thread-safety: none.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace torch::nn {
class Module;
}

namespace cohort::optim {

/// While it lives, a model's BatchNorm layers compute the mean over all batches since its construction, and the model is in
/// training mode.
class COHORT_API BatchNormStatistics {
 public:
  explicit BatchNormStatistics(torch::nn::Module& model);
  ~BatchNormStatistics();
  BatchNormStatistics(const BatchNormStatistics&) = delete;
  BatchNormStatistics& operator=(const BatchNormStatistics&) = delete;

  /// Whether no layer has statistics.
  bool is_empty() const { return momenta_.empty(); }

 private:
  torch::nn::Module& model_;
  bool was_training_;
  std::vector<std::pair<std::reference_wrapper<std::optional<double>>, std::optional<double>>> momenta_;
};

/// Returns the input in a batch: the batch itself, its `data`, or its first element.
inline const at::Tensor& input_of(const at::Tensor& batch) { return batch; }
inline const at::Tensor& input_of(const std::vector<at::Tensor>& batch) { return batch.at(0); }
template <class Batch>
const at::Tensor& input_of(const Batch& batch) {
  if constexpr (requires { batch.data; }) {
    return batch.data;
  } else {
    return std::get<0>(batch);
  }
}

/// Passes once over the loader's batches, each moved to `device` if that is set. `model`: a holder or std::shared_ptr of a
/// module.
template <class Loader, class Model>
void update_bn(Loader&& loader, Model&& model, std::optional<c10::Device> device = {}) {
  const BatchNormStatistics statistics(*model);
  if (statistics.is_empty()) return;
  const at::NoGradGuard no_grad;
  for (auto&& batch : loader) {
    const at::Tensor& input = input_of(batch);
    model->forward(device ? input.to(*device) : input);
  }
}

}  // namespace cohort::optim
