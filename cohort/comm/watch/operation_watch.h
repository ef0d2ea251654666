/// OperationWatch: follows the operations of one group, finds out why one does not end, and says so.
///
/// A backend calls `starting` before each operation and hands the watch to a TrackedWork, which calls the rest.
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
  /// Called in the calling thread, in order, before the engine gets the operation. Throws c10::DistBackendError when the
  /// ranks are known to differ (TORCH_DISTRIBUTED_DEBUG=DETAIL).
  virtual void starting(const job::Operation& operation) = 0;
  /// In place of `starting`, for engines that compare calls themselves: `operation` has been waiting for a while.
  virtual void delayed(const job::Operation& /*operation*/) {}
  /// Called now and then in a thread that waits for `operation`. Returns: why it can never end, or an empty text.
  virtual std::string find_obstacle(const job::Operation& operation) = 0;
  /// For an engine that knows its causes: adds what is known beside them, and which operation it is.
  virtual base::Failure explain(const job::Operation& operation, base::Failure failure) = 0;
  /// For an engine that knows no more than that it failed, in its own words (the one cause) and whether it was a time-out:
  /// looks for the cause at the other ranks. Blocks for a few seconds at most.
  virtual base::Failure find_cause(const job::Operation& operation, base::Failure failure) = 0;
  /// For an exception that an engine's own thread did not catch, which ends the process: what the group was doing, if that
  /// explains it, else an empty text. Takes a few seconds at most.
  virtual std::string explain_crash(const std::string& /*engine_text*/) { return {}; }
  /// The group's time-out has been changed.
  virtual void set_timeout(std::chrono::milliseconds /*timeout*/) {}
};

/// For groups whose ranks are not known as processes: explains a failure by the engine's own text.
std::shared_ptr<OperationWatch> engine_text_watch();

}  // namespace cohort::comm
