/// Options and results of Trainer::find_batch_size and Trainer::find_learning_rate.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::train {

struct BatchSizeOptions {
  int64_t first = 2;  ///< doubled each time
  int64_t max = 1 << 20;
  int64_t steps = 3;  ///< with each size
};

struct BatchSizeTrial {
  int64_t batch_size = 0;           ///< of one rank
  double samples_per_second = 0.0;  ///< of one rank
};

struct BatchSizeResult {
  /// The largest batch size that worked, and the one with the most samples per second. Absent if none worked.
  std::optional<int64_t> largest = {};
  std::optional<int64_t> fastest = {};
  std::vector<BatchSizeTrial> trials = {};
  /// Why the search ended: "max", "no more data", or the out-of-memory error.
  std::string reason = {};
};

/// Options and defaults are Lightning's.
struct LearningRateOptions {
  double first = 1e-8;
  double last = 1.0;
  int64_t steps = 100;
  /// Linear instead of exponential steps.
  bool is_linear = false;
  /// Ends if the loss is this many times the best. If absent, it never ends early.
  std::optional<double> early_stop_threshold = 4.0;
};

struct LearningRateResult {
  std::vector<double> rates = {};
  /// Smoothed means over the ranks.
  std::vector<double> losses = {};
  /// The rate at which the loss falls fastest. Absent if too few losses are finite.
  std::optional<double> suggestion = {};
};

/// Returns the rate at the steepest point, ignoring the first `skip_begin` and the last `skip_end` points.
COHORT_API std::optional<double> steepest_rate(const std::vector<double>& rates, const std::vector<double>& losses,
                                               size_t skip_begin = 10, size_t skip_end = 1);

}  // namespace cohort::train
