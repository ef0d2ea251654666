/// Why an operation of the engine did not succeed, as data: the layers above make texts and exceptions of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace cohort::shm {

struct Failure {
  enum class Kind {
    kTimeout,   ///< somebody did not come in time
    kLostRank,  ///< a process has ended, or a rank has left the group
    kMismatch,  ///< ranks called different operations
    kAborted,   ///< abort() on this rank
    kArgument,  ///< this call can never work; the group stays usable
    kObstacle,  ///< CallOptions::find_obstacle found one
  };
  Kind kind;
  /// "caused by" lines, the nearest first.
  std::vector<std::string> causes;
  std::string hint;
  /// kTimeout: the ranks that have not come, one per cause.
  std::vector<int> missing = {};
};

/// Null: success.
using Outcome = std::shared_ptr<const Failure>;

inline Outcome fail(Failure failure) { return std::make_shared<const Failure>(std::move(failure)); }

}  // namespace cohort::shm
