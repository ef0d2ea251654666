/// Gradient clipping, with the names, arguments, defaults and numbers of torch/nn/utils/clip_grad.py.
///
///     loss.backward();
///     const at::Tensor norm = cohort::nn::utils::clip_grad_norm_(net->parameters(), /*max_norm=*/1.0);
///     optimizer.step();
///
/// LibTorch has its own clip_grad_norm_ and clip_grad_value_ (torch/nn/utils/clip_grad.h), but not the other two. Its norm is a
/// number on the host, for which the host waits; it has no `foreach`; and its norm of order 0 counts all gradients, while
/// PyTorch's and this one count those that are not all zeros.
///
/// `parameters` and `tensors`: one tensor, a list in braces, or any range of tensors. Parameters without a gradient are skipped,
/// and parameters listed twice, such as those of modules that share them, count once.
/// They may lie on several devices and have several floating-point dtypes. Gradients are changed in place.
/// `foreach`: as in PyTorch. If absent, one call for all tensors of a device and dtype, if the device has such calls (CPU, CUDA,
/// XPU, MTIA and private devices); true: throws c10::Error on other devices; false: one call per tensor.
/// Autograd records nothing of this. Under DistributedDataParallel gradients are averaged once backward() has returned, so every
/// rank gets the same norm.
///
/// Shards: for parameters that fully_shard has sharded, clip_grad_norm_ computes the norm of the full gradients. Gradients do not
/// know whether they are shards, but parameters do, so pass their gradients_of() to get_total_norm:
///
///     const at::Tensor norm = get_total_norm(gradients_of(model->parameters()));
///     clip_grads_with_norm_(model->parameters(), /*max_norm=*/1.0, norm);   // together the same as clip_grad_norm_
///
/// Both are then collective: every rank of the shards' groups must call them, with its parameters in the same order. For plain
/// tensors get_total_norm sees only this rank's, but it knows how DTensors are sharded, each on its mesh: DTensors and plain
/// tensors together are one vector, whose norm is a plain tensor.
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

/// Returns the norm of order `norm_type` of all tensors, as if they were one vector: a 0-dimensional tensor on the first one's
/// device, or 0 on the CPU for an empty list. The order may be infinity. Throws c10::Error if `error_if_nonfinite` is set and the
/// norm is not finite; the host then waits for the device.
COHORT_API at::Tensor get_total_norm(const Tensors& tensors, double norm_type = 2.0, bool error_if_nonfinite = false,
                                     std::optional<bool> foreach = std::nullopt);

/// The gradients of parameters, and how they are sharded.
struct Gradients {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> tensors;  ///< undefined without a gradient
  /// The groups over whose ranks each is sharded, one group after the other; empty if it is not sharded.
  std::vector<std::vector<Group>> groups;
};
COHORT_API Gradients gradients_of(const Tensors& parameters);

/// Returns the norm of the full gradients, of which shards are a part: the same on all ranks that have all of them. A gradient
/// that is not sharded counts as it is on this rank. In the gradients' dtype, on the first one's device, for which the host does
/// not wait. Collective if any parameter is a shard, also for ranks without a gradient. Throws as above, on all ranks alike, and
/// c10::DistBackendError if the exchange fails.
COHORT_API at::Tensor get_total_norm(const Gradients& gradients, double norm_type = 2.0,
                                     bool error_if_nonfinite = false, std::optional<bool> foreach = std::nullopt);

/// Multiplies every gradient by min(max_norm / (total_norm + 1e-6), 1).
COHORT_API void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const at::Tensor& total_norm,
                                      std::optional<bool> foreach = std::nullopt);

/// Does both: scales the gradients so that their norm is at most `max_norm`. Returns the norm before scaling. Throws as
/// get_total_norm; the gradients are then unchanged.
COHORT_API at::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type = 2.0,
                                      bool error_if_nonfinite = false, std::optional<bool> foreach = std::nullopt);

/// Clamps every element of every gradient to [-clip_value, clip_value].
COHORT_API void clip_grad_value_(const Tensors& parameters, double clip_value,
                                 std::optional<bool> foreach = std::nullopt);

}  // namespace cohort::nn::utils
