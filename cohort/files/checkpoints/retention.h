/// Decides which checkpoints of a run are kept. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::files {

struct RetentionRules {
  /// The number of newest checkpoints to keep. If absent, keeps all.
  std::optional<int64_t> keep_last = {};
  /// Also keeps, for ever, steps that are multiples of this number.
  std::optional<int64_t> keep_every = {};
  /// Also keeps this number of checkpoints with the best metric.
  int64_t keep_best = 0;
  bool highest_is_best = false;
};

struct SavedStep {
  int64_t step = 0;
  /// NaN counts as absent.
  std::optional<double> metric = {};
};

/// Returns the steps that no rule keeps, in ascending order. The newest step is never among them. If metrics are equal, the newer
/// step is better.
std::vector<int64_t> steps_to_remove(std::vector<SavedStep> saved, const RetentionRules& rules);

}  // namespace cohort::files
