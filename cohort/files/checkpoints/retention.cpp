#include "cohort/files/checkpoints/retention.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cohort::files {

std::vector<int64_t> steps_to_remove(std::vector<SavedStep> saved, const RetentionRules& rules) {
  if (!rules.keep_last) return {};
  std::sort(saved.begin(), saved.end(), [](const SavedStep& a, const SavedStep& b) { return a.step > b.step; });
  std::set<int64_t> kept;
  for (size_t i = 0; i < saved.size(); ++i) {
    const bool is_last = static_cast<int64_t>(i) < *rules.keep_last;
    const bool is_multiple = rules.keep_every && saved[i].step % *rules.keep_every == 0;
    if (is_last || is_multiple) kept.insert(saved[i].step);
  }
  std::vector<SavedStep> rated;
  for (const SavedStep& item : saved) {
    if (item.metric && !std::isnan(*item.metric)) rated.push_back(item);
  }
  // Stable: of equal metrics the newer step comes first.
  std::stable_sort(rated.begin(), rated.end(), [&](const SavedStep& a, const SavedStep& b) {
    return rules.highest_is_best ? *a.metric > *b.metric : *a.metric < *b.metric;
  });
  for (size_t i = 0; i < rated.size() && static_cast<int64_t>(i) < rules.keep_best; ++i) kept.insert(rated[i].step);
  std::vector<int64_t> removed;
  for (const SavedStep& item : saved) {
    if (!kept.contains(item.step)) removed.push_back(item.step);
  }
  std::reverse(removed.begin(), removed.end());
  return removed;
}

}  // namespace cohort::files
