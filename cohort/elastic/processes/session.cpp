#include "cohort/elastic/processes/session.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/processes/orphans.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

constexpr int kMaxSessions = 4096;
constexpr pid_t kDismissed = 0;
/// Means that every process announced so far has ended; other processes may have their pids now.
constexpr pid_t kForget = -1;
/// The number of passes: a process that forks while it is being killed needs another pass.
constexpr int kKillPasses = 100;
constexpr useconds_t kPassMicroseconds = 10'000;
/// The number of passes for a process in the middle of exec, which has no environment until it runs.
constexpr int kEmptyPasses = 5;

/// Killing the leader's process group is not enough: each worker has its own, and a shell with job control makes more.
void kill_all(const std::set<pid_t>& sessions, const std::string& mark) {
  for (const pid_t session : sessions) ::kill(-session, SIGKILL);
  for (int pass = 0, empty = 0; pass < kKillPasses && empty < kEmptyPasses; ++pass) {
    std::vector<SessionMember> left = living_members(sessions);
    for (SessionMember& member : marked_processes(mark)) left.push_back(std::move(member));
    empty = left.empty() ? empty + 1 : 0;
    for (const SessionMember& member : left) ::kill(member.pid, SIGKILL);
    ::usleep(kPassMicroseconds);
  }
}

/// The end of the pipe means that the launcher is gone.
[[noreturn]] void run_guard(int fd, const std::string& mark, const std::function<void()>& last_act) {
  static pid_t sessions[kMaxSessions];
  int count = 0;
  pid_t session = 0;
  for (;;) {
    const ssize_t size = ::read(fd, &session, sizeof session);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof session) break;
    if (session == kDismissed) ::_exit(0);
    if (session == kForget) count = 0;
    if (session > 0 && count < kMaxSessions) sessions[count++] = session;
  }
  kill_all({sessions, sessions + count}, mark);
  if (last_act) last_act();
  ::_exit(0);
}

/// Detaches the child from the terminal and closes everything except the pipe.
[[noreturn]] void become_guard(int fd, const std::string& mark, const std::function<void()>& last_act) {
  ::setsid();
  ::prctl(PR_SET_NAME, "cohort-guard");
  if (::dup2(fd, STDIN_FILENO) < 0) ::_exit(1);
  (void)::syscall(SYS_close_range, 1U, ~0U, 0U);
  run_guard(STDIN_FILENO, mark, last_act);
}

}  // namespace

bool parse_process_stat(const std::string& text, SessionMember& member) {
  // Parses "71 (a name) S 1 70 70 ...". The name may have spaces and brackets itself.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return false;
  const auto pid = base::parse_int(base::trim(text.substr(0, open)));
  const std::vector<std::string> fields = base::split(std::string_view(text).substr(close + 2), ' ');
  if (!pid || fields.size() < 4 || fields[0] == "Z" || fields[0] == "X") return false;
  const auto session = base::parse_int(fields[3]);
  if (!session) return false;
  member = {static_cast<pid_t>(*pid), static_cast<pid_t>(*session), text.substr(open + 1, close - open - 1)};
  return true;
}

std::optional<SessionMember> read_member(pid_t pid) {
  const Result<std::string> stat = base::read_file(fmt::format("/proc/{}/stat", pid));
  SessionMember member;
  if (!stat || !parse_process_stat(*stat, member)) return std::nullopt;
  return member;
}

std::vector<SessionMember> living_members(const std::set<pid_t>& sessions) {
  std::vector<SessionMember> members;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto pid = base::parse_int(name);
    if (!pid) continue;
    const pid_t session = ::getsid(static_cast<pid_t>(*pid));
    if (session < 0 || !sessions.contains(session)) continue;
    const auto member = read_member(static_cast<pid_t>(*pid));
    if (member && sessions.contains(member->session)) members.push_back(*member);
  }
  return members;
}

Result<SessionGuard> SessionGuard::start(const std::string& mark, const std::function<void()>& last_act) {
  Result<base::Pipe> pipe = base::make_pipe();
  if (!pipe) return pipe.error();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(pipe->write_end.get());
    become_guard(pipe->read_end.get(), mark, last_act);
  }
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return Error("cannot start the launcher's guard").caused_by(base::no_process("fork", error_number));
  SessionGuard guard;
  guard.pid_ = pid;
  guard.sessions_ = std::move(pipe->write_end);
  return guard;
}

SessionGuard::SessionGuard(SessionGuard&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), sessions_(std::move(other.sessions_)), is_missed_(other.is_missed_) {}

void SessionGuard::forget() {
  const pid_t forget = kForget;
  if (::write(sessions_.get(), &forget, sizeof forget) == sizeof forget || errno != EPIPE || is_missed_) return;
  is_missed_ = true;
  base::log_warning(
      fmt::format("the launcher's guard (pid {}) was killed; if the launcher is killed too, whatever its workers have "
                  "started keeps running",
                  pid_));
}

SessionGuard::~SessionGuard() {
  if (pid_ < 0) return;
  // If the guard was killed itself (EPIPE), it needs no dismissal.
  const pid_t dismissed = kDismissed;
  (void)!::write(sessions_.get(), &dismissed, sizeof dismissed);
  sessions_.reset();
  ::kill(pid_, SIGCONT);  // it may have been stopped
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cohort::elastic
