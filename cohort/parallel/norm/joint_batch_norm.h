/// Batch norm of the batches of several ranks as if they were one: the mechanics of SyncBatchNorm.
///
/// One small all_gather in forward (means, variances, counts), one all_reduce in backward (sums), on whatever device the input
/// is. Follows torch/nn/modules/_functions.py, but gathers variances, from which the common one loses no digits.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/comm/group/process_group.h"

namespace cohort::norm {

/// What a training pass synchronises over: `group`, or the default group if it is null; null where this rank is alone, is no
/// member, or there are no groups.
Group group_to_join(const Group& group);

/// Running statistics move by `momentum` towards those of the ranks' common batch. Any of these tensors may be undefined, running
/// ones both or none.
struct BatchNormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var;
};

/// Collective over `group`, which has more than one rank, as is its backward, if `input` requires a gradient there: on all ranks
/// or none. Gradients of weight and bias are this rank's share.
/// Requires: `input` [batch, channels, ...] of 2 dimensions or more, floating-point, also empty; the same dtype and channels on
/// all ranks. Returns its shape, dtype and memory format. Statistics of float16 and bfloat16 are float32.
/// Throws c10::DistBackendError as collectives do; backward throws c10::Error under create_graph.
at::Tensor joint_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors, const Group& group,
                            double momentum, double eps);

}  // namespace cohort::norm
