// How a rank waits for the others: in slices, between which it looks whether the wait can still end well.
#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/deadline.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/vault/keeper.h"

namespace cohort::vault {

using base::Error;
using base::Result;

namespace {

/// Ranks may be busy with other things for long, such as an evaluation.
constexpr std::chrono::hours kLongest{24 * 30};
constexpr std::chrono::milliseconds kFirstSlice{250};
constexpr std::chrono::milliseconds kLongestSlice{2'000};
/// For telling the others why this rank waits no longer.
constexpr std::chrono::milliseconds kTellTime{5'000};

}  // namespace

// As Store::barrier, which would never open where its keys are deleted. A rank that waits for longer than a slice writes itself
// into a list, by which it notices that.
Result<void> Keeper::meet(const std::string& name, const Look& look) {
  const std::string is_open = name + "/last_member";
  const Result<int64_t> place = store_->add(name + "/num_members", 1);
  if (!place) return place.error();
  if (*place == place_.world_size) return store_->set(is_open, "1");
  const auto begin = Clock::now();
  for (auto slice = kFirstSlice;; slice = std::min(2 * slice, kLongestSlice)) {
    Result<void> waited = store_->wait({is_open}, slice);
    if (waited || !store::is_timeout(waited.error()) || Clock::now() - begin > kLongest) return waited;
    if (slice == kFirstSlice) {
      if (auto appended = store_->append(name + "/waiting", fmt::format("{} ", place_.rank)); !appended)
        return appended;
    }
    const Result<bool> met = is_met(name);
    if (!met) return met.error();
    if (*met) return {};
    if (Result<void> looked = look(); !looked) return looked;
  }
}

// Error: keys of the meeting are gone.
Result<bool> Keeper::is_met(const std::string& name) {
  const Result<int64_t> count = store_->add(name + "/num_members", 0);
  if (!count) return count.error();
  const Result<std::string> list =
      store_->compare_set(name + "/waiting", "none", "none");  // reads it, and waits for nothing
  if (!list) return list.error();
  num_come_ = *count;
  if (*count == place_.world_size) return true;
  const std::vector<std::string> ranks = base::split(base::trim(*list), ' ');
  const bool is_listed = std::find(ranks.begin(), ranks.end(), std::to_string(place_.rank)) != ranks.end();
  if (is_listed && static_cast<int64_t>(ranks.size()) <= *count) return false;
  return Error("somebody has deleted keys of this job from the workers' store");
}

Result<void> Keeper::await(const store::Store::Keys& keys) {
  const auto begin = Clock::now();
  const auto deadline = base::deadline_after(store_->timeout(), begin);
  for (auto slice = kFirstSlice;; slice = std::min(2 * slice, kLongestSlice)) {
    Result<void> waited = store_->wait(keys, slice);
    if (waited || !store::is_timeout(waited.error()) || Clock::now() > deadline) return waited;
    const Result<void> looked = look_around(begin, "the other nodes to say which memory snapshots they have");
    if (!looked) return looked;
  }
}

Result<void> Keeper::look_around(Clock::time_point begin, const std::string& what) {
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
  const std::string obstacle = waits_.find_obstacle ? waits_.find_obstacle(waited) : "";
  if (!obstacle.empty()) return Error(fmt::format("rank {} no longer waits for {}: {}", place_.rank, what, obstacle));
  if (begin != said_of_) next_word_ = waits_.first_word;
  said_of_ = begin;
  if (waited < next_word_) return {};
  base::log_warning(
      fmt::format("rank {} has waited for {} for {}", place_.rank, base::format_duration(next_word_), what));
  next_word_ *= 2;
  return {};
}

Result<void> Keeper::wait() {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> ended_at;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kFirstSlice, [this] { return !is_busy_; })) {
    if (ended_at && Clock::now() - *ended_at > kTellTime) return *obstacle_;
    if (ended_at) continue;
    lock.unlock();
    const Result<void> looked =
        look_around(begin, fmt::format("the other ranks to finish a memory snapshot ({} of {} have)", num_come_.load(),
                                       place_.world_size));
    lock.lock();
    if (looked) continue;
    obstacle_ = looked.error();
    ended_at = Clock::now();
  }
  if (error_) return *error_;
  return {};
}

Result<void> Keeper::look_in_background(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return Error("interrupted");
    if (obstacle_) return *obstacle_;
  }
  const Result<int64_t> sum = store_->add(name + "/layouts", 0);
  if (!sum) return sum.error();
  if (*sum >= kCannotGoOn) return Error("another rank cannot go on");
  return {};
}

// All ranks have come this far. False: they do not have the same in what they should have alike.
Result<bool> Keeper::agree(int64_t layout) {
  const std::string name = key(std::to_string(sequence_));
  if (const auto sum = store_->add(name + "/layouts", layout); !sum) return sum.error();
  const Result<void> met = meet(name, [&] { return look_in_background(name); });
  const auto sum = store_->add(name + "/layouts", 0);
  if (!met && (!sum || *sum < kCannotGoOn)) return end_meeting(name, met.error());
  if (!sum) return sum.error();
  if (*sum >= kCannotGoOn && layout != kCannotGoOn) {
    const auto why = store_->get(key("failure"));
    const std::string text = why ? *why : "another rank cannot go on";
    const auto ends = store_->check({key("ends")});
    return ends && *ends ? described_error(text) : give_back(text);
  }
  // Nobody waits for the keys of the one before any more.
  if (place_.rank == 0 && sequence_ > 0) {
    const std::string former = key(std::to_string(sequence_ - 1));
    for (const char* suffix : {"/layouts", "/num_members", "/last_member", "/waiting"})
      (void)store_->delete_key(former + suffix);
  }
  ++sequence_;
  return *sum == layout * place_.world_size;
}

// Others may wait for this rank, unless it is about to end or has lost the store. Where an obstacle has ended the wait, training
// ends, and the run's next start goes on from what is kept.
Error Keeper::end_meeting(const std::string& name, const Error& why) {
  bool ends = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return why;
    ends = obstacle_.has_value();
  }
  if (ends && !store_->set(key("ends"), "")) return why;
  if (!store_->set(key("failure"), why.describe())) return why;
  (void)store_->add(name + "/layouts", kCannotGoOn);
  return ends ? why : give_back(why.describe());
}

}  // namespace cohort::vault
