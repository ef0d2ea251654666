/// OperationWatch: follows the operations of one group, finds out why one does not end, and says so.
///
/// A backend calls `starting` before each operation and hands the watch to a TrackedWork, which calls the rest.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cohort/job/operation.h"

namespace cohort::comm {

/// What an engine that looks after its ranks itself knows about a failure.
struct EngineFailure {
  /// kObstacle: find_obstacle has found one.
  enum class Kind { kOther, kTimeout, kLostRank, kMismatch, kObstacle };
  Kind kind = Kind::kOther;
  /// The nearest first.
  std::vector<std::string> causes;
  std::string hint;
  /// Of a time-out: the group ranks that did not come, in the order of the causes that tell of them.
  std::vector<int> missing = {};
  std::chrono::milliseconds timeout{0};
};

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
  /// Turns an engine's exception text into the one users see.
  virtual std::string explain(const job::Operation& operation, const std::string& engine_text) = 0;
  /// The same for an engine that knows its causes; adds what is known beside them.
  virtual std::string explain(const job::Operation& operation, EngineFailure failure) = 0;
  /// The same for an exception that an engine's own thread did not catch, which ends the process: what the group was doing,
  /// if that explains it, else an empty text. Takes a few seconds at most.
  virtual std::string explain_crash(const std::string& /*engine_text*/) { return {}; }
  /// The group's time-out has been changed.
  virtual void set_timeout(std::chrono::milliseconds /*timeout*/) {}
};

/// For groups whose ranks are not known as processes: explains a failure by the engine's own text.
std::shared_ptr<OperationWatch> engine_text_watch();

/// Throws a c10::DistBackendError with what `watch` makes of an engine's exception.
[[noreturn]] void throw_explained(OperationWatch& watch, const job::Operation& operation, const std::exception& error);

}  // namespace cohort::comm
