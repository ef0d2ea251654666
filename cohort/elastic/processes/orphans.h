/// Orphans: processes that workers start, in any session, and leave behind when they end.
///
/// While the launcher lives, the kernel makes it their parent (PR_SET_CHILD_SUBREAPER), so it finds them among its own children.
/// After the launcher was killed, the guard (session.h) recognizes them by a variable in the environment with which they were
/// started.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "cohort/elastic/processes/session.h"

namespace cohort::elastic {

class Orphans {
 public:
  /// Makes this process the parent of processes that its descendants leave behind from now on. Children that it already has are
  /// not counted.
  static Orphans adopt();

  /// Returns the living children of this process that are not among `workers`, with all their descendants, and reaps those that
  /// have ended. Empty if the kernel does not list children (it was built without CONFIG_PROC_CHILDREN).
  std::vector<SessionMember> find(const std::set<pid_t>& workers) const;

 private:
  std::set<pid_t> earlier_;
};

/// The variable that says from which agent a process descends, and a value that is unique to this process.
inline constexpr const char* kAgentVariable = "COHORT_AGENT";
std::string make_agent_mark();
/// Returns the living processes that were started with this mark in their environment, as far as this user may see it.
std::vector<SessionMember> marked_processes(const std::string& mark);

}  // namespace cohort::elastic
