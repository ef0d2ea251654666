#include "cohort/train/optim/update_bn.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include "cohort/parallel/norm/sync_batch_norm.h"

namespace cohort::optim {
namespace {

std::optional<double>& momentum_in(torch::nn::BatchNormOptions& options) { return options.momentum(); }
std::optional<double>& momentum_in(SyncBatchNormOptions& options) { return options.momentum; }

// Returns the momentum of a BatchNorm layer, after resetting its statistics; null for other layers.
template <class Layer>
std::optional<double>* momentum_of(torch::nn::Module& module) {
  auto* const layer = dynamic_cast<Layer*>(&module);
  if (!layer) return nullptr;
  layer->reset_running_stats();
  return &momentum_in(layer->options);
}

std::optional<double>* batch_norm_momentum(torch::nn::Module& module) {
  if (auto* const found = momentum_of<torch::nn::BatchNorm1dImpl>(module)) return found;
  if (auto* const found = momentum_of<torch::nn::BatchNorm2dImpl>(module)) return found;
  if (auto* const found = momentum_of<torch::nn::BatchNorm3dImpl>(module)) return found;
  return momentum_of<SyncBatchNormImpl>(module);
}

}  // namespace

BatchNormStatistics::BatchNormStatistics(torch::nn::Module& model) : model_(model), was_training_(model.is_training()) {
  const at::NoGradGuard no_grad;
  for (const auto& module : model.modules()) {
    if (auto* const momentum = batch_norm_momentum(*module)) momenta_.emplace_back(*momentum, *momentum);
  }
  if (momenta_.empty()) return;
  for (auto& [setting, before] : momenta_) setting.get() = std::nullopt;
  model.train();
}

BatchNormStatistics::~BatchNormStatistics() {
  for (auto& [setting, before] : momenta_) setting.get() = before;
  if (!momenta_.empty()) model_.train(was_training_);
}

}  // namespace cohort::optim
