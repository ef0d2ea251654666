#include "cohort/snapshot/client/rank_waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

namespace {

/// Ranks may be busy with other things for a long time, such as an evaluation.
constexpr std::chrono::hours kLongest{24 * 30};
constexpr std::chrono::milliseconds kLongestSlice{2'000};

}  // namespace

// Works as Store::barrier, which would never open after its keys are deleted. A rank that waits for longer than one interval adds
// itself to a list, and so notices deleted keys.
Result<void> RankWaits::meet(store::Store& store, const std::string& name, const Look& look) {
  const std::string is_open = name + "/last_member";
  const Result<int64_t> place = store.add(name + "/num_members", 1);
  if (!place) return place.error();
  if (*place == place_.world_size) return store.set(is_open, "1");
  const auto begin = Clock::now();
  for (auto slice = kFirstSlice;; slice = std::min(2 * slice, kLongestSlice)) {
    Result<void> waited = store.wait({is_open}, slice);
    if (waited || !store::is_timeout(waited.error()) || Clock::now() - begin > kLongest) return waited;
    if (slice == kFirstSlice) {
      if (auto appended = store.append(name + "/waiting", fmt::format("{} ", place_.rank)); !appended) return appended;
    }
    const Result<bool> met = is_met(store, name);
    if (!met) return met.error();
    if (*met) return {};
    if (Result<void> looked = look(); !looked) return looked;
  }
}

// Returns an error if keys of the meeting have been deleted.
Result<bool> RankWaits::is_met(store::Store& store, const std::string& name) {
  const Result<int64_t> count = store.add(name + "/num_members", 0);
  if (!count) return count.error();
  const Result<std::string> list =
      store.compare_set(name + "/waiting", "none", "none");  // reads the value without waiting
  if (!list) return list.error();
  num_come_ = *count;
  if (*count == place_.world_size) return true;
  const std::vector<std::string> ranks = base::split(base::trim(*list), ' ');
  const bool is_listed = std::find(ranks.begin(), ranks.end(), std::to_string(place_.rank)) != ranks.end();
  if (is_listed && static_cast<int64_t>(ranks.size()) <= *count) return false;
  return Error("somebody has deleted keys of this job from the workers' store");
}

Result<void> RankWaits::await(store::Store& store, const store::Store::Keys& keys, const std::string& what) {
  const auto begin = Clock::now();
  const auto deadline = base::deadline_after(store.timeout(), begin);
  for (auto slice = kFirstSlice;; slice = std::min(2 * slice, kLongestSlice)) {
    Result<void> waited = store.wait(keys, slice);
    if (waited || !store::is_timeout(waited.error()) || Clock::now() > deadline) return waited;
    const Result<void> looked = look_around(begin, what);
    if (!looked) return looked;
  }
}

Result<void> RankWaits::look_around(Clock::time_point begin, const std::string& what) {
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
  const std::string obstacle = options_.find_obstacle ? options_.find_obstacle(waited) : "";
  if (!obstacle.empty()) return Error(fmt::format("rank {} no longer waits for {}: {}", place_.rank, what, obstacle));
  if (begin != said_of_) next_word_ = options_.first_word;
  said_of_ = begin;
  if (waited < next_word_) return {};
  base::log_warning(
      fmt::format("rank {} has waited for {} for {}", place_.rank, base::format_duration(next_word_), what));
  next_word_ *= 2;
  return {};
}

}  // namespace cohort::snapshot
