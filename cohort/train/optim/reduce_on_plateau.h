/// ReduceLROnPlateau: lowers the rates when a metric has stopped improving. Options and defaults are PyTorch's.
///
///     cohort::optim::ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 3});
///     scheduler.step(validation_loss);   // the same number on every rank: reduce it first (train/metrics/metric.h)
#pragma once

#include <cstdint>

#include "cohort/export.h"
#include "cohort/train/optim/scheduler_base.h"

namespace cohort::optim {

/// Whether lower or higher metrics are better, and whether thresholds are relative or absolute.
enum class PlateauMode { kMin, kMax };
enum class ThresholdMode { kRel, kAbs };

struct PlateauOptions {
  PlateauMode mode = PlateauMode::kMin;
  /// The factor of the rates, less than 1.
  double factor = 0.1;
  /// The number of epochs without improvement that are allowed.
  int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  /// Epochs after a reduction that are not counted.
  int64_t cooldown = 0;
  PerGroup min_lr = 0.0;
  /// Rates do not change if they would change by no more than this.
  double eps = 1e-8;
};

class COHORT_API ReduceLROnPlateau final : public LRScheduler {
 public:
  /// Throws c10::ValueError (PyTorch's text) for a factor of 1 or more.
  explicit ReduceLROnPlateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options = {});

  void step(double metric);
  /// Throws c10::TypeError, as this scheduler needs the metric.
  void step() override;

 private:
  Fields fields() override;
  bool is_better(double metric) const;
  double worst() const;
  void reduce();

  PlateauOptions options_;
  Rates min_lrs_;
  double best_;
  int64_t cooldown_counter_ = 0;
  int64_t num_bad_epochs_ = 0;
};

}  // namespace cohort::optim
