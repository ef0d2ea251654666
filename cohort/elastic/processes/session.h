/// The processes that workers leave behind: who is still alive in their session, and who ends them when we are killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::elastic {

struct SessionMember {
  pid_t pid = 0;
  pid_t session = 0;
  /// The program's short name.
  std::string name;
};

/// Every living process of these sessions, zombies left out.
std::vector<SessionMember> living_members(const std::set<pid_t>& sessions);

/// What /proc tells of a living process; nothing for a zombie, or where there is none.
std::optional<SessionMember> read_member(pid_t pid);

/// Parses one /proc/<pid>/stat; false for a zombie or for any other text.
bool parse_process_stat(const std::string& text, SessionMember& member);

/// A tiny process that outlives us for a moment: should we die without a word (kill -9, out of memory), it kills the
/// workers' session and whatever else they have started. (The kernel itself kills the workers, but nothing more.)
class SessionGuard {
 public:
  /// `mark` is in the environment of everything that workers start (orphans.h), also in sessions of their own. `last_act` is
  /// called in the guard after it had to kill, such as for removing a temporary folder.
  /// Requires that this process has no other threads: the guard is a fork without exec, which allocates.
  static base::Result<SessionGuard> start(const std::string& mark, const std::function<void()>& last_act = nullptr);
  SessionGuard(SessionGuard&& other) noexcept;
  /// Dismisses the guard: nothing is killed any more.
  ~SessionGuard();

  /// Whoever writes its pid here (ProcessOptions::announce_fd) is protected from then on: its session dies with us.
  int announce_fd() const { return sessions_.get(); }
  /// All that were announced have ended and are reaped: their numbers may soon be those of strangers.
  void forget();

 private:
  SessionGuard() = default;
  pid_t pid_ = -1;
  base::Fd sessions_;
  /// It was killed, and that has been said.
  bool is_missed_ = false;
};

}  // namespace cohort::elastic
