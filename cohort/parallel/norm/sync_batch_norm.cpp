#include "cohort/parallel/norm/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/functional/batchnorm.h>

#include <ostream>

#include "cohort/parallel/norm/sync_batch_norm_function.h"

namespace cohort {

SyncBatchNormImpl::SyncBatchNormImpl(int64_t num_features, const SyncBatchNormOptions& options)
    : num_features(num_features), options(options) {
  SyncBatchNormImpl::reset();
}

void SyncBatchNormImpl::reset() {
  const auto made = at::TensorOptions().device(options.device).dtype(options.dtype);
  const auto parameter = [&](const char* name, bool exists) {
    return register_parameter(name, exists ? at::empty({num_features}, made) : at::Tensor(), exists);
  };
  weight = parameter("weight", options.affine);
  bias = parameter("bias", options.affine && options.bias);
  const bool tracks = options.track_running_stats;
  running_mean = register_buffer("running_mean", tracks ? at::empty({num_features}, made) : at::Tensor());
  running_var = register_buffer("running_var", tracks ? at::empty({num_features}, made) : at::Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", tracks ? at::empty({}, made.dtype(at::kLong)) : at::Tensor());
  reset_parameters();
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!options.track_running_stats) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::reset_parameters() {
  reset_running_stats();
  const at::NoGradGuard no_grad;
  if (weight.defined()) weight.fill_(1);
  if (bias.defined()) bias.zero_();
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "cohort::SyncBatchNorm(" << num_features << ", eps=" << options.eps << ", momentum=";
  if (options.momentum) {
    stream << *options.momentum;
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine << ", bias=" << bias.defined()
         << ", track_running_stats=" << options.track_running_stats << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  TORCH_CHECK_VALUE(input.dim() >= 2, "expected at least 2D input (got ", input.dim(), "D input)");
  TORCH_CHECK_VALUE(input.size(1) != 0, "SyncBatchNorm number of input channels should be non-zero");
  const bool tracks = is_training() && options.track_running_stats;
  double momentum = options.momentum.value_or(0.0);
  if (tracks) {
    num_batches_tracked.add_(1);
    if (!options.momentum) momentum = 1.0 / num_batches_tracked.item<double>();
  }
  const auto group = is_training() ? norm::group_to_sync(options.process_group) : Group();
  if (group)
    return norm::sync_batch_norm(input, {weight, bias, running_mean, running_var}, group, momentum, options.eps);
  return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                   is_training() || !options.track_running_stats, momentum,
                                                   options.eps);
}

}  // namespace cohort
