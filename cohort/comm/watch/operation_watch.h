/// OperationWatch: follows the operations of one group, finds out why one does not end, and reports it.
///
/// A backend calls `starting` before each operation and gives the watch to a TrackedWork, which calls the rest.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/job/failure.h"
#include "cohort/job/operation.h"

namespace cohort::comm {

/// Knows the other ranks of a group. Thread-safety: every function may be called from any thread.
class OperationWatch {
 public:
  virtual ~OperationWatch() = default;
  /// Called in the calling thread, in order, before the engine gets the operation. Throws c10::DistBackendError if the
  /// ranks are known to differ (TORCH_DISTRIBUTED_DEBUG=DETAIL).
  virtual void starting(const job::Operation& operation) = 0;
  /// Called instead of `starting` by engines that compare calls themselves: `operation` has been waiting for a while.
  virtual void delayed(const job::Operation& /*operation*/) {}
  /// Called from time to time in a thread that waits for `operation`. Returns: why it can never end, or an empty text.
  virtual std::string find_obstacle(const job::Operation& operation) = 0;
  /// For an engine that knows the causes: adds the operation and what else is known.
  virtual base::Failure explain(const job::Operation& operation, base::Failure failure) = 0;
  /// For an engine that only knows that it failed, in its own words (the only cause), and whether it was a timeout: looks for
  /// the cause at the other ranks. Blocks for a few seconds at most.
  virtual base::Failure find_cause(const job::Operation& operation, base::Failure failure) = 0;
  /// For an exception that an engine's own thread did not catch, which ends the process. Returns: what the group was doing, if
  /// that explains it, otherwise an empty text. Takes a few seconds at most.
  virtual std::string explain_crash(const std::string& /*engine_text*/) { return {}; }
  /// Called after the group's timeout has changed.
  virtual void set_timeout(std::chrono::milliseconds /*timeout*/) {}
};

/// Returns a watch that explains a failure with the engine's own text, for groups whose ranks are not known as processes.
std::shared_ptr<OperationWatch> engine_text_watch();

}  // namespace cohort::comm
