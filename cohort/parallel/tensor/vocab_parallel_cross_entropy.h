/// Cross entropy of logits whose classes are sharded over the ranks of a group, as a column layer without gather_output returns
/// them. No rank ever sees all logits: ranks exchange three numbers per position, and nothing in backward.
///
///     auto loss = cohort::parallel::vocab_parallel_cross_entropy(own_logits, targets, {.group = tp});
///
/// Value and gradients equal torch.nn.functional.cross_entropy of all logits together, up to rounding.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

struct ParallelCrossEntropyOptions {
  /// If null, the default group; a rank that is alone has all classes.
  Group group = {};
  /// Mean over the targets that are not ignored, by their weights, Sum, or None.
  at::Reduction::Reduction reduction = at::Reduction::Mean;
  /// Targets with this value are ignored.
  int64_t ignore_index = -100;
  /// Between 0 and 1: the share of each target that is spread over all classes.
  double label_smoothing = 0;
  /// Weight of each class, [classes of all ranks], floating-point, the same on every rank. If undefined, all classes count
  /// equally.
  at::Tensor weight = {};
  /// Number of classes of all ranks together. If absent, all ranks have the same number; otherwise shards are those of
  /// torch.chunk.
  std::optional<int64_t> num_classes = {};
};

/// `logits` [batch, own classes, ...] or [own classes], floating-point; `targets` int64 of that shape without the classes, the
/// same on every rank. Returns a scalar, or with None a tensor of the targets' shape, in the logits' dtype. Computes in float32
/// or float64. Forward is collective, backward is local and has no second derivative.
/// Throws c10::ValueError for sizes and options that do not fit, on the CPU c10::IndexError for a target outside the classes,
/// c10::DistBackendError if an exchange fails, and c10::Error for backward with create_graph.
COHORT_API at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                                   const ParallelCrossEntropyOptions& options = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using ParallelCrossEntropyOptions [[deprecated("use cohort::parallel::ParallelCrossEntropyOptions")]] =
    parallel::ParallelCrossEntropyOptions;
using parallel::vocab_parallel_cross_entropy;
}  // namespace cohort
