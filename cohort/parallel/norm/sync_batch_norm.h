/// SyncBatchNorm: batch norm whose statistics in training are those of the batches of all ranks together.
///
///     cohort::SyncBatchNorm norm(64);
///     auto model = cohort::convert_sync_batchnorm(cohort::models::resnet18());   // for a full model: convert_sync_batchnorm.h
///
/// Forward and backward equal BatchNorm on the joined batch, whatever share of it a rank has, even an empty one. In evaluation,
/// and on a rank that is alone, it is plain batch norm. Gradients of weight and bias are each rank's share of the sum, which
/// DistributedDataParallel averages as all others.
/// Names, defaults and texts follow torch/nn/modules/batchnorm.py, which refuses the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <iosfwd>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

struct SyncBatchNormOptions {
  /// Added to the variance.
  double eps = 1e-5;
  /// How far running statistics move in a step; if absent, they are the mean over all steps.
  std::optional<double> momentum = 0.1;
  /// Has weight and bias; with `bias = false` only the weight.
  bool affine = true;
  /// If false, evaluation also uses the batch's statistics, then of this rank alone.
  bool track_running_stats = true;
  /// If null, the default group.
  Group process_group = {};
  std::optional<c10::Device> device = {};
  std::optional<c10::ScalarType> dtype = {};
  bool bias = true;
};

class COHORT_API SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(int64_t num_features, const SyncBatchNormOptions& options = {});
  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// `input` [batch, num_features, ...] of 2 dimensions or more -> the same shape, dtype and memory format. In training, forward
  /// and backward are collective. Throws c10::ValueError for a one-dimensional input or one without channels, c10::Error for one
  /// value per channel if the rank is alone.
  at::Tensor forward(const at::Tensor& input);

  int64_t num_features;
  SyncBatchNormOptions options;
  /// Undefined if the options leave them out.
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace cohort
