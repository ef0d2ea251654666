/// Gradient clipping, with the names, arguments, defaults and numbers of torch/nn/utils/clip_grad.py.
///
///     loss.backward();
///     const at::Tensor norm = cohort::nn::utils::clip_grad_norm_(net->parameters(), /*max_norm=*/1.0);
///     optimizer.step();
///
/// LibTorch has a clip_grad_norm_ and a clip_grad_value_ of its own (torch/nn/utils/clip_grad.h), without the other two. Its norm
/// is a number on the host, for which the host waits; it has no `foreach`; and its norm of order 0 counts all gradients, which in
/// PyTorch and here counts those that are not all zeros.
///
/// `parameters` and `tensors`: one tensor, a list in braces, or any range of tensors; parameters without a gradient are left out,
/// and those that are there twice, as of modules that share them, count once.
/// They may lie on several devices and have several floating-point dtypes. Gradients are changed in place.
/// `foreach`: as in PyTorch. Absent: one call for all tensors of a device and dtype, where the device has such calls (CPU, CUDA,
/// XPU, MTIA and private devices); true: throws c10::Error on other devices; false: one call per tensor.
/// Nothing here is recorded for autograd. Under DistributedDataParallel gradients are the averages once backward() has returned,
/// so every rank gets the same norm.
///
/// Shards: of parameters that fully_shard has sharded, clip_grad_norm_ finds the norm of the whole gradients. Tensors do not know
/// whether they are parts; parameters do, so get_total_norm is to be asked by way of them:
///
///     const at::Tensor norm = get_total_norm(gradients_of(model->parameters()));
///     clip_grads_with_norm_(model->parameters(), /*max_norm=*/1.0, norm);   // together the same as clip_grad_norm_
///
/// Both are then collective: every rank of the shards' groups must call, with its parameters in the same order. Given tensors,
/// get_total_norm sees this rank's alone, except of DTensors, which say how they are divided, each on its mesh: all of them and
/// plain tensors are one vector, whose norm is a plain tensor.
/// Thread-safety: no other thread may use the gradients meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/optim/tensors.h"

namespace cohort::nn::utils {

using optim::Tensors;

/// The norm of order `norm_type` of all tensors, as if they were one vector: a tensor of no dimension on the first one's device,
/// 0 on the CPU for no tensors. An order may be infinity.
/// Throws c10::Error if `error_if_nonfinite` and the norm is not finite; the host then waits for the device.
COHORT_API at::Tensor get_total_norm(const Tensors& tensors, double norm_type = 2.0, bool error_if_nonfinite = false,
                                     std::optional<bool> foreach = std::nullopt);

/// The gradients of parameters, with what is known of them.
struct Gradients {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> tensors;  ///< undefined where there is no gradient
  /// Over whose ranks each is divided, one group after the other; none: it is whole.
  std::vector<std::vector<Group>> groups;
};
COHORT_API Gradients gradients_of(const Tensors& parameters);

/// The norm of the whole gradients, of which shards are parts: the same on all ranks that have all of them. A whole gradient
/// counts as it is here. Of the gradients' dtype, on the first one's device, for which the host does not wait.
/// Collective if any parameter is a shard, also for ranks without a gradient. Throws as above, on all ranks alike, and
/// c10::DistBackendError when the exchange fails.
COHORT_API at::Tensor get_total_norm(const Gradients& gradients, double norm_type = 2.0,
                                     bool error_if_nonfinite = false, std::optional<bool> foreach = std::nullopt);

/// Multiplies every gradient by min(max_norm / (total_norm + 1e-6), 1).
COHORT_API void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const at::Tensor& total_norm,
                                      std::optional<bool> foreach = std::nullopt);

/// Both: scales the gradients so that their norm is at most `max_norm`. Returns the norm that they had.
/// Throws as get_total_norm; the gradients are then unchanged.
COHORT_API at::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type = 2.0,
                                      bool error_if_nonfinite = false, std::optional<bool> foreach = std::nullopt);

/// Brings every element of every gradient into [-clip_value, clip_value].
COHORT_API void clip_grad_value_(const Tensors& parameters, double clip_value,
                                 std::optional<bool> foreach = std::nullopt);

}  // namespace cohort::nn::utils
