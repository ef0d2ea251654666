/// Accuracy: which part of the answers is right. See metric.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/train/metrics/metric.h"

namespace cohort::train {

struct AccuracyOptions {
  /// An answer is right if the target is among so many classes with the largest outputs.
  int64_t top_k = 1;
  /// Two classes, one output each: an answer is 1 where the output is larger than this; 0.0 for logits, 0.5 for probabilities.
  /// Then top_k does not count.
  std::optional<double> threshold = {};
  /// Targets of this class are left out, as padding of texts.
  std::optional<int64_t> ignore_index = {};
};

class COHORT_API Accuracy final : public Metric {
 public:
  /// Throws c10::ValueError for a top_k below 1.
  explicit Accuracy(const AccuracyOptions& options = {});

  /// `output` [samples, classes, ...], `target` [samples, ...]: class numbers; with a threshold both [samples, ...].
  /// `num_real`: the first so many samples count; default: all. Throws c10::ValueError for other shapes.
  void update(const at::Tensor& output, const at::Tensor& target, std::optional<int64_t> num_real = {});
  /// Right answers / answers.
  double value(const std::vector<double>& sums) const override;

 private:
  at::Tensor is_right(const at::Tensor& output, const at::Tensor& target) const;

  AccuracyOptions options_;
};

}  // namespace cohort::train
