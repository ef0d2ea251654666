/// Patience: extends the time that a store's server may take for answers, for all clients that share the object. A process that
/// knows that waiting loses nothing, such as an agent whose workers have ended, extends it while the clients wait.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

namespace cohort::store {

/// Thread-safety: all functions may be called from any thread.
class Patience {
 public:
  using Milliseconds = std::chrono::milliseconds;
  /// Extends the time. `when_used` is called once, by the first thread whose usual time is over.
  void extend(Milliseconds time, std::function<void()> when_used);
  /// Returns how long a client whose usual time is over may wait altogether; 0 if nothing was extended.
  Milliseconds use();

 private:
  std::mutex mutex_;
  Milliseconds time_{0};
  std::function<void()> when_used_;
};

}  // namespace cohort::store
