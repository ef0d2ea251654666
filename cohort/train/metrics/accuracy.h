/// Accuracy: the share of correct predictions. See metric.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/train/metrics/metric.h"

namespace cohort::train {

struct AccuracyOptions {
  /// A prediction is correct if the target is among this many classes with the largest outputs.
  int64_t top_k = 1;
  /// For two classes with one output per sample: the prediction is 1 if the output is larger than this, such as 0.0 for logits,
  /// 0.5 for probabilities. top_k is then ignored.
  std::optional<double> threshold = {};
  /// Ignores targets of this class, such as the padding of texts.
  std::optional<int64_t> ignore_index = {};
};

class COHORT_API Accuracy final : public Metric {
 public:
  /// Throws c10::ValueError for a top_k below 1.
  explicit Accuracy(const AccuracyOptions& options = {});

  /// `output` [samples, classes, ...], `target` [samples, ...]: class numbers; with a threshold both [samples, ...]. `num_real`:
  /// only the first so many samples count; default: all. Throws c10::ValueError for other shapes.
  void update(const at::Tensor& output, const at::Tensor& target, std::optional<int64_t> num_real = {});
  /// Returns correct predictions / predictions.
  double value(const std::vector<double>& sums) const override;

 private:
  at::Tensor is_right(const at::Tensor& output, const at::Tensor& target) const;

  AccuracyOptions options_;
};

}  // namespace cohort::train
