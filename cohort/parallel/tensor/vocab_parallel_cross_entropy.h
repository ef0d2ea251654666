/// Cross entropy of logits whose classes are shared out over the ranks of a group, as a column layer without gather_output gives
/// them. No rank ever sees all logits: three numbers a position are exchanged, and nothing in backward.
///
///     auto loss = cohort::vocab_parallel_cross_entropy(own_logits, targets, {.group = tp});
///
/// Value and gradients equal torch.nn.functional.cross_entropy of all logits together, up to rounding.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

struct ParallelCrossEntropyOptions {
  /// Null: the default group; a rank that is alone has all classes.
  Group group = {};
  /// Mean over the targets that are not ignored, by their weights, Sum, or None.
  at::Reduction::Reduction reduction = at::Reduction::Mean;
  /// Targets of this value count for nothing.
  int64_t ignore_index = -100;
  /// Between 0 and 1: the share of each target that is spread over all classes.
  double label_smoothing = 0;
  /// Of each class, [classes of all ranks], floating-point, the same on every rank. Undefined: all count alike.
  at::Tensor weight = {};
  /// Of all ranks together. Absent: all ranks have as many; else parts are those of torch.chunk.
  std::optional<int64_t> num_classes = {};
};

/// `logits` [batch, own classes, ...] or [own classes], floating-point; `targets` int64 of that shape without the classes, the
/// same on every rank. Returns a scalar, or with None the targets' shape, in the logits' dtype. Computes in float32 or float64.
/// Collective, but for backward, which has no second derivative.
/// Throws c10::ValueError for sizes and options that do not fit, on the CPU c10::IndexError for a target that is no class,
/// c10::DistBackendError when an exchange fails, and c10::Error for backward under create_graph.
COHORT_API at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                                   const ParallelCrossEntropyOptions& options = {});

}  // namespace cohort
