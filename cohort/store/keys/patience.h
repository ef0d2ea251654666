/// Patience: how much longer than usual the answers of a store's server may take, for all clients that share it. Whoever knows
/// that nothing is lost by waiting, such as an agent whose workers have ended, extends it while the clients wait.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

namespace cohort::store {

/// Thread-safe.
class Patience {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// `when_used` is called once, by the first thread whose usual time is over.
  void extend(Milliseconds time, std::function<void()> when_used);
  /// For a client whose usual time is over: how long it may wait altogether; 0 where nothing was extended.
  Milliseconds use();

 private:
  std::mutex mutex_;
  Milliseconds time_{0};
  std::function<void()> when_used_;
};

}  // namespace cohort::store
