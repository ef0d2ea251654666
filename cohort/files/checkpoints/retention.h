/// Which checkpoints of a run are kept. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::files {

struct RetentionRules {
  /// The newest ones; 0: all.
  int64_t keep_last = 0;
  /// Besides those, for ever: steps that are multiples of it; 0: none.
  int64_t keep_every = 0;
  /// Besides those: the ones with the best metric; 0: none.
  int64_t keep_best = 0;
  bool highest_is_best = false;
};

struct SavedStep {
  int64_t step = 0;
  /// NaN counts as none.
  std::optional<double> metric = {};
};

/// The steps that no rule keeps, in rising order. The newest is never among them. Of equal metrics the newer step is better.
std::vector<int64_t> steps_to_remove(std::vector<SavedStep> saved, const RetentionRules& rules);

}  // namespace cohort::files
