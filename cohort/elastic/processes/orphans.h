/// Orphans: processes that workers start, in whatever session, and leave behind when they end.
///
/// While a launcher lives, the kernel gives them to it (PR_SET_CHILD_SUBREAPER), so it finds them among its own children. Once
/// it was killed they belong to nobody: then the guard (session.h) knows them by a variable in the environment that they were
/// started with.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "cohort/elastic/processes/session.h"

namespace cohort::elastic {

class Orphans {
 public:
  /// From now on this process becomes the parent of what its descendants leave behind. Children that it already has are not
  /// counted.
  static Orphans adopt();

  /// Living children of this process that are no `workers`, with all their descendants. Those that have ended are reaped. Empty
  /// where the kernel does not list children (it was built without CONFIG_PROC_CHILDREN).
  std::vector<SessionMember> find(const std::set<pid_t>& workers) const;

 private:
  std::set<pid_t> earlier_;
};

/// The variable that says which agent a process descends from, and a value that is this process's alone.
inline constexpr const char* kAgentVariable = "COHORT_AGENT";
std::string make_agent_mark();
/// Living processes that were started with this mark in their environment, as far as this user may see that.
std::vector<SessionMember> marked_processes(const std::string& mark);

}  // namespace cohort::elastic
