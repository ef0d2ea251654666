/// RankWaits: how a rank waits for the others in the round's store. It waits in short intervals; between them it checks whether
/// the wait can still succeed, and logs a line from time to time.
///
/// Thread-safety: one thread calls look_around() and await(), and one thread, which may be another, calls meet().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "cohort/base/error/result.h"
#include "cohort/snapshot/place.h"
#include "cohort/store/keys/store.h"

namespace cohort::snapshot {

/// Callbacks and limits for a rank that waits for others.
struct RankWaitOptions {
  using Milliseconds = std::chrono::milliseconds;
  /// Called at least every two seconds. Returns why the wait should end, such as a signal; "" means that it goes on. Its
  /// exceptions leave the call. May be null.
  std::function<std::string(Milliseconds waited)> find_obstacle = nullptr;
  /// The time after which a wait logs a line. The next line follows after twice as much, and so on.
  Milliseconds first_word{10'000};
};

/// The first interval, and the interval of checks in a wait without a store.
constexpr std::chrono::milliseconds kFirstSlice{250};

class RankWaits {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  /// Returns an error if the wait must end.
  using Look = std::function<base::Result<void>()>;

  RankWaits(const Place& place, RankWaitOptions options) : place_(place), options_(std::move(options)) {}

  /// Blocks until all ranks have arrived at `name`. Errors come from `look` or the store, or somebody has deleted the keys.
  base::Result<void> meet(store::Store& store, const std::string& name, const Look& look);
  /// Blocks until the store has all keys, at most for its timeout. Checks for obstacles meanwhile, and logs that it waits for
  /// `what`.
  base::Result<void> await(store::Store& store, const store::Store::Keys& keys, const std::string& what);
  /// Checks a wait for `what` that began at `begin`. Returns an error if it must end.
  base::Result<void> look_around(Clock::time_point begin, const std::string& what);
  /// The number of ranks that have arrived at the last meeting, as far as this rank knows. May be called from any thread.
  int64_t num_come() const { return num_come_; }

 private:
  base::Result<bool> is_met(store::Store& store, const std::string& name);

  const Place& place_;
  const RankWaitOptions options_;
  /// The beginning of the wait that look_around() checked last, and the time until its next line.
  Clock::time_point said_of_{};
  Milliseconds next_word_{0};
  std::atomic<int64_t> num_come_ = 1;
};

}  // namespace cohort::snapshot
