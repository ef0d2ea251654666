/// RunSummary: the table at the end of a run: each epoch's time, metrics, speed and utilisation, and what to do where it is low.
///
///     cohort::train::RunSummary summary;
///     summary.add({.epoch = epoch, .seconds = 64.2, .num_samples = 50000, .metrics = {{"loss", 0.5}}, .data_wait_share = 0.02});
///     std::cout << summary.text();
///
/// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/progress.h"

namespace cohort::train {

struct EpochSummary {
  /// Counted from 0, shown from 1.
  int64_t epoch = 0;
  /// Of training; validation is not counted.
  double seconds = 0.0;
  /// Of all ranks together.
  int64_t num_samples = 0;
  Metrics metrics = {};
  /// Parts of the time, 0 to 1, mean over the ranks. What is left of both is the utilisation.
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  /// How much of the CPUs that the ranks may use they used, 0 to 1.
  std::optional<double> cpu_share = {};
};

struct RunSummaryOptions {
  int world_size = 1;
  std::string unit = "samples";
  /// A hint is given where the ranks wait for data, or for each other, for more than this part of the time.
  double low_data = 0.15;
  double low_communication = 0.3;
};

class COHORT_API RunSummary {
 public:
  explicit RunSummary(RunSummaryOptions options = {});
  void add(EpochSummary epoch);
  bool empty() const { return epochs_.empty(); }
  const std::vector<EpochSummary>& epochs() const { return epochs_; }
  /// Table, total and hints, each line ended; "" without an epoch.
  std::string text() const;

 private:
  RunSummaryOptions options_;
  std::vector<EpochSummary> epochs_;
};

}  // namespace cohort::train
