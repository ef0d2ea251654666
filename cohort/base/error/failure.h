/// Describes why an operation of several ranks failed, as data: from the engine that noticed it to the text that a user reads.
///
/// Result's Error says why one process cannot do something; a Failure also says what it means for the other ranks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cohort::base {

struct Failure {
  enum class Kind {
    kEngine,    ///< an error of an engine, or a state that has no other kind
    kTimeout,   ///< a rank did not arrive in time
    kLostRank,  ///< a process has ended, or a rank has left the group
    kMismatch,  ///< ranks called different operations
    kObstacle,  ///< a check outside of the engine found that the operation can never end
    kAborted,   ///< abort() on this rank
    kArgument,  ///< this call can never work; becomes a c10::ValueError
  };
  static constexpr int kNumKinds = 7;
  /// The operation that failed. It decides the exception of every kind but kArgument.
  enum class Scope {
    kGroup,  ///< an operation of a group, or connecting the group: c10::DistBackendError
    kJob,    ///< the start of the job: c10::DistStoreError
  };

  Kind kind = Kind::kEngine;
  /// The "caused by" lines, the nearest cause first.
  std::vector<std::string> causes = {};
  /// The next step for the user.
  std::string hint = {};
  /// With kTimeout: the group ranks that have not arrived, one per cause if the engine reports them.
  std::vector<int> missing = {};
  /// With kTimeout: the limit that has run out. Zero means that it is not known.
  std::chrono::milliseconds timeout{0};
  /// The first line: "all_reduce #5 on group \"dp\" failed". If empty, the text has the causes alone.
  std::string what = {};
  /// Lines that say which rank on which host has failed, and with what.
  std::vector<std::string> where = {};
  /// A line after the causes: "still missing: ranks 2 and 3".
  std::string note = {};
  /// The operation: "all_reduce #5 on group \"dp\"". Empty if no operation failed.
  std::string operation = {};
  Scope scope = Scope::kGroup;
};

}  // namespace cohort::base
