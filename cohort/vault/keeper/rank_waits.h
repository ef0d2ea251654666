/// RankWaits: how a rank waits for the others in the round's store: in slices, between which it looks whether the wait can still
/// end well, and says now and then that it waits.
///
/// Thread-safety: look_around() and await() belong to one thread, meet() to one, which may be another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "cohort/base/error/result.h"
#include "cohort/store/keys/store.h"
#include "cohort/vault/place.h"

namespace cohort::vault {

/// What a rank does while it waits for others in a call.
struct KeeperWaits {
  using Milliseconds = std::chrono::milliseconds;
  /// Looked at every two seconds at least: why the wait should end, such as a signal; "": it goes on. What it throws leaves the
  /// call. May be null.
  std::function<std::string(Milliseconds waited)> find_obstacle = nullptr;
  /// A wait says after this time that it is one, and after twice as much again, and so on.
  Milliseconds first_word{10'000};
};

/// The first slice, and how often a wait without a store looks around.
constexpr std::chrono::milliseconds kFirstSlice{250};

class RankWaits {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  /// Error: the wait is to end.
  using Look = std::function<base::Result<void>()>;

  RankWaits(const Place& place, KeeperWaits options) : place_(place), options_(std::move(options)) {}

  /// Blocks until all ranks have come to `name`. Error: of `look`, of the store, or somebody has deleted the meeting's keys.
  base::Result<void> meet(store::Store& store, const std::string& name, const Look& look);
  /// Blocks until the store has all keys, as long as its time-out at most; looks around meanwhile, and says that it waits for
  /// `what`.
  base::Result<void> await(store::Store& store, const store::Store::Keys& keys, const std::string& what);
  /// In a wait for `what` that has begun at `begin`. Error: it is to end.
  base::Result<void> look_around(Clock::time_point begin, const std::string& what);
  /// Ranks that have come to the last meeting, as far as this one knows. From any thread.
  int64_t num_come() const { return num_come_; }

 private:
  base::Result<bool> is_met(store::Store& store, const std::string& name);

  const Place& place_;
  const KeeperWaits options_;
  /// When the wait began that look_around() has looked at last, and after how long it says something next.
  Clock::time_point said_of_{};
  Milliseconds next_word_{0};
  std::atomic<int64_t> num_come_ = 1;
};

}  // namespace cohort::vault
