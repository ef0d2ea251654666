/// Finds processes that workers leave behind in their session, and ends them if the launcher is killed.
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

/// Returns every living process of these sessions, without zombies.
std::vector<SessionMember> living_members(const std::set<pid_t>& sessions);

/// Reads a living process from /proc; nothing for a zombie, or if there is no such process.
std::optional<SessionMember> read_member(pid_t pid);

/// Parses the text of one /proc/<pid>/stat. Returns false for a zombie or any other text.
bool parse_process_stat(const std::string& text, SessionMember& member);

/// A small process that outlives the launcher for a moment. If the launcher is killed (kill -9, out of memory), the guard kills
/// the workers' session and everything else that workers have started. (The kernel itself kills only the workers.)
class SessionGuard {
 public:
  /// Starts the guard. `mark` is in the environment of everything that workers start (orphans.h), also in other sessions.
  /// `last_act` is called in the guard after it had to kill, for example to remove a temporary folder. Requires that this process
  /// has no other threads, because the guard is a fork without exec that allocates.
  static base::Result<SessionGuard> start(const std::string& mark, const std::function<void()>& last_act = nullptr);
  SessionGuard(SessionGuard&& other) noexcept;
  /// Dismisses the guard: it kills nothing any more.
  ~SessionGuard();

  /// A child that writes its pid here (ProcessOptions::announce_fd) is protected from then on: its session ends with the
  /// launcher.
  int announce_fd() const { return sessions_.get(); }
  /// Forgets all announced children. They have ended and are reaped, so other processes may soon get their pids.
  void forget();

 private:
  SessionGuard() = default;
  pid_t pid_ = -1;
  base::Fd sessions_;
  /// Whether the guard was killed and this has been logged.
  bool is_missed_ = false;
};

}  // namespace cohort::elastic
