/// RunSummary: the table at the end of a run, with each epoch's time, metrics, speed and utilization, and hints if it is low.
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
  /// Time of training, without validation.
  double seconds = 0.0;
  /// Samples of all ranks.
  int64_t num_samples = 0;
  Metrics metrics = {};
  /// Shares of the time, 0 to 1, means over the ranks. The utilization is the time that is left.
  std::optional<double> data_wait_share = {};
  std::optional<double> communication_share = {};
  /// The share that the ranks used of the CPUs that they may use, 0 to 1.
  std::optional<double> cpu_share = {};
};

struct RunSummaryOptions {
  int world_size = 1;
  std::string unit = "samples";
  /// Shares of time from which on a hint is given: waiting for data, and waiting for other ranks.
  double low_data = 0.15;
  double low_communication = 0.3;
};

class COHORT_API RunSummary {
 public:
  explicit RunSummary(RunSummaryOptions options = {});
  void add(EpochSummary epoch);
  bool empty() const { return epochs_.empty(); }
  const std::vector<EpochSummary>& epochs() const { return epochs_; }
  /// Returns table, total and hints, each line with a newline; "" without an epoch.
  std::string text() const;

 private:
  RunSummaryOptions options_;
  std::vector<EpochSummary> epochs_;
};

}  // namespace cohort::train
