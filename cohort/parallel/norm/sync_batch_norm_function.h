/// The autograd function of SyncBatchNorm: treats the batches of several ranks as one.
///
/// Makes one small all_gather in forward (means, variances, counts) and one all_reduce in backward (sums), on the input's device.
/// Follows torch/nn/modules/_functions.py, but gathers variances, which loses no digits in the common variance.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/comm/group/process_group.h"

namespace cohort::norm {

/// Returns the group over which a training pass synchronizes: `group`, or the default group if it is null; null if this rank is
/// alone or not a member, or there are no groups.
Group group_to_sync(const Group& group);

/// Running statistics move by `momentum` towards those of the ranks' common batch. Any of these tensors may be undefined, the two
/// running ones only together.
struct BatchNormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var;
};

/// Forward is collective over `group`, which has more than one rank; so is backward, if `input` requires a gradient: on all ranks
/// or on none. Gradients of weight and bias are this rank's share.
/// Requires: `input` [batch, channels, ...] of 2 dimensions or more, floating-point, possibly empty; the same dtype and channels
/// on all ranks. Returns a tensor of its shape, dtype and memory format. Statistics of float16 and bfloat16 are float32.
/// Throws c10::DistBackendError as collectives do; backward throws c10::Error with create_graph.
at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors, const Group& group,
                           double momentum, double eps);

}  // namespace cohort::norm
