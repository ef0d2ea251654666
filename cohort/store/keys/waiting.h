/// Parts that stores with waiting share: texts of timeouts, and pauses between polls. Private to this folder.
#pragma once

#include <chrono>
#include <string>

#include "cohort/base/system/deadline.h"
#include "cohort/store/keys/store.h"

namespace cohort::store {

/// Returns PyTorch's text "wait timeout after 300ms, keys: a, b".
base::Error wait_timed_out(std::chrono::milliseconds timeout, const Store::Keys& keys);
/// Returns "barrier timeout after 300ms, key: a".
base::Error barrier_timed_out(std::chrono::milliseconds timeout, const std::string& key);

/// Pauses between polls that grow from 0.1 ms to `longest`, until the time is over.
class Pauses {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Pauses(std::chrono::milliseconds timeout, std::chrono::milliseconds longest = std::chrono::milliseconds(20))
      : deadline_(base::deadline_after(timeout)), longest_(longest) {}
  /// Sleeps for the next pause. Returns false at once if the time is over.
  bool rest();
  std::chrono::milliseconds left() const;

 private:
  const Clock::time_point deadline_;
  const std::chrono::milliseconds longest_;
  std::chrono::microseconds next_{100};
};

}  // namespace cohort::store
