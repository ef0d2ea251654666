/// What Trainer::find_batch_size and Trainer::find_learning_rate can be told, and give.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::train {

struct BatchSizeOptions {
  int64_t first = 2;  ///< then twice as much each time
  int64_t max = 1 << 20;
  int64_t steps = 3;  ///< that each size makes
};

struct BatchSizeTrial {
  int64_t batch_size = 0;           ///< of one rank
  double samples_per_second = 0.0;  ///< of one rank
};

struct BatchSizeResult {
  /// The largest that worked, and the one with the most samples per second; 0: none.
  int64_t largest = 0;
  int64_t fastest = 0;
  std::vector<BatchSizeTrial> trials = {};
  /// Why it ended: "max", "no more data", or what said that memory is short.
  std::string reason = {};
};

/// Lightning's and their defaults.
struct LearningRateOptions {
  double first = 1e-8;
  double last = 1.0;
  int64_t steps = 100;
  /// Linear instead of exponential steps.
  bool is_linear = false;
  /// Ends where the loss is so many times the best; nothing: never.
  std::optional<double> early_stop_threshold = 4.0;
};

struct LearningRateResult {
  std::vector<double> rates = {};
  /// Smoothed, the mean over the ranks.
  std::vector<double> losses = {};
  /// Where the loss falls fastest; nothing where too few losses are finite.
  std::optional<double> suggestion = {};
};

/// The rate at the steepest place, without the first `skip_begin` and the last `skip_end` points.
COHORT_API std::optional<double> steepest_rate(const std::vector<double>& rates, const std::vector<double>& losses,
                                               size_t skip_begin = 10, size_t skip_end = 1);

}  // namespace cohort::train
