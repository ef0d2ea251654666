/// Operations and threads that a backend runs by itself in this process, for the process's end: a backend that has some joins
/// the list, and whoever ends the process knows no backend.
#pragma once

#include <cstddef>
#include <memory>

#include "cohort/export.h"

namespace cohort::comm {

/// What runs for one group. Thread-safety: every function may be called from any thread.
class BackgroundThreads {
 public:
  virtual ~BackgroundThreads() = default;
  /// Operations that have not ended.
  virtual size_t num_pending() = 0;
  /// Runs what nobody waits for to its end, within its time-outs; may throw where the user interrupts it. Returns: how many
  /// operations could not be completed.
  virtual size_t complete() = 0;
  /// Ends them with an error, and the threads. Effective once.
  virtual void close() = 0;
};

/// Thread-safe, as all here. Keeps no reference.
void add_background_threads(const std::shared_ptr<BackgroundThreads>& threads);
/// Without effect on what is not in the list. Must come before `threads` is destroyed.
void remove_background_threads(BackgroundThreads& threads);

/// Operations of this process that run in the background and have not ended.
size_t num_pending_in_background();
/// At exit: completes such operations. Returns: how many could not be.
COHORT_BINDING_API size_t complete_background_operations();
/// At exit: closes all that have such operations.
void end_background_operations();

/// The process ends because of an error: from now on nothing waits for other ranks that need not.
void end_without_waiting();
bool ends_without_waiting();

/// Ends all operations that backends run in this process, and their threads. For hosts whose own end does not bear
/// threads, as Python's. Afterwards every operation of theirs fails.
/// Returns: true if there were any; threads that use them may still be on their way out of an operation.
COHORT_BINDING_API bool end_background_threads();

}  // namespace cohort::comm
