/// Operations and threads that backends run in the background, listed for the end of the process: each backend with such threads
/// joins the list, so code that ends the process need not know backends.
#pragma once

#include <cstddef>
#include <memory>

#include "cohort/export.h"

namespace cohort::comm {

/// The background operations and threads of one group. Thread-safety: every function may be called from any thread.
class BackgroundThreads {
 public:
  virtual ~BackgroundThreads() = default;
  /// Returns the number of operations that have not ended.
  virtual size_t num_pending() = 0;
  /// Completes operations that nobody waits for, within their timeouts; may throw if the user interrupts it. Returns: the number
  /// of operations that could not be completed.
  virtual size_t complete() = 0;
  /// Ends the operations with an error, and the threads. A second call does nothing.
  virtual void close() = 0;
};

/// Adds to the list, which keeps no reference. Thread-safe, as every function here.
void add_background_threads(const std::shared_ptr<BackgroundThreads>& threads);
/// Does nothing if `threads` is not in the list. Must be called before `threads` is destroyed.
void remove_background_threads(BackgroundThreads& threads);

/// Returns the number of this process's background operations that have not ended.
size_t num_pending_in_background();
/// For the exit: completes these operations. Returns: the number of those that could not be completed.
COHORT_BINDING_API size_t complete_background_operations();
/// For the exit: closes every group with such operations.
void end_background_operations();

/// Notes that the process ends because of an error: from now on nothing waits for other ranks unless it must.
void end_without_waiting();
bool ends_without_waiting();

/// Ends all operations that backends run in this process, and their threads. For host programs such as Python, which cannot end
/// while threads run. Afterwards every operation of these backends fails.
/// Returns: true if there were any; threads that use them may still be leaving an operation.
COHORT_BINDING_API bool end_background_threads();

}  // namespace cohort::comm
