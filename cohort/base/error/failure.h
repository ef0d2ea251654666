/// Why something that ranks do together did not succeed, as data: from the engine that noticed it to the text a user reads.
///
/// Result's Error says why one process cannot do something; a Failure also knows what it is to the other ranks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cohort::base {

struct Failure {
  enum class Kind {
    kEngine,    ///< an engine's error, or a state, that no other kind names
    kTimeout,   ///< somebody did not come in time
    kLostRank,  ///< a process has ended, or a rank has left the group
    kMismatch,  ///< ranks called different operations
    kObstacle,  ///< somebody who looked beside the engine found that this can never end
    kAborted,   ///< abort() on this rank
    kArgument,  ///< this call can never work; becomes a c10::ValueError
  };
  static constexpr int kNumKinds = 7;
  /// What did not succeed; decides the exception of every kind but kArgument.
  enum class Scope {
    kGroup,  ///< an operation of a group, or its connecting: c10::DistBackendError
    kJob,    ///< the start of the job: c10::DistStoreError
  };

  Kind kind = Kind::kEngine;
  /// "caused by" lines, the nearest first.
  std::vector<std::string> causes = {};
  /// What to do next.
  std::string hint = {};
  /// kTimeout: the group ranks that have not come, one per cause where an engine reports them.
  std::vector<int> missing = {};
  /// kTimeout: the limit that has run out; zero where it is not known.
  std::chrono::milliseconds timeout{0};
  /// "all_reduce #5 on group \"dp\" failed"; empty: the causes alone are the text.
  std::string what = {};
  /// Lines that say where: which rank on which host, with what.
  std::vector<std::string> where = {};
  /// A line after the causes: "still missing: ranks 2 and 3".
  std::string note = {};
  /// "all_reduce #5 on group \"dp\""; empty where no operation failed.
  std::string operation = {};
  Scope scope = Scope::kGroup;
};

}  // namespace cohort::base
