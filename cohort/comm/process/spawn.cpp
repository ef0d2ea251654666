#include "cohort/comm/process/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/threads.h"
#include "cohort/comm/process/spawned_rank.h"

namespace cohort {
namespace {

using comm::SpawnedRank;

// Refuses other threads: forked ranks would not have them, but would have the locks that they hold.
void refuse_other_threads() {
  std::vector<std::string> names;
  const auto threads = base::names_in_folder("/proc/self/task");
  for (const std::string& thread : threads ? *threads : names) {
    if (thread == std::to_string(getpid())) continue;
    std::ifstream file("/proc/self/task/" + thread + "/comm");
    std::string name;
    std::getline(file, name);
    names.push_back("\"" + name + "\"");
  }
  if (names.empty()) return;
  throw std::runtime_error("[cohort] spawn must be called before the process starts threads, but " +
                           std::to_string(names.size()) + " run already: " + base::join(names, ", ") +
                           ". Call it first in main, before any tensor operation large enough to run in parallel, or "
                           "start the ranks with `cohort run`.");
}

// Restores SIGCHLD: a program that was started with SIGCHLD ignored would never learn how its ranks end.
void notice_ends() {
  struct sigaction action {};
  sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler != SIG_IGN && !(action.sa_flags & SA_NOCLDWAIT)) return;
  if (action.sa_handler == SIG_IGN) action.sa_handler = SIG_DFL;
  action.sa_flags &= ~SA_NOCLDWAIT;
  sigaction(SIGCHLD, &action, nullptr);
}

std::string error_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

// Runs a rank from begin to end. Exits without running the parent's atexit handlers again.
[[noreturn]] void run_rank(const std::function<void(int)>& fn, int index, int nprocs, int error_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int exit_code = 0;
  try {
    comm::apply_default_thread_count(nprocs);
    fn(index);
  } catch (const std::exception& error) {
    const auto text = error_text(error).substr(0, comm::kMaxErrorBytes);
    [[maybe_unused]] const auto result = base::write_all(error_fd, text.empty() ? "(no text)" : text);
    exit_code = 1;
  }
  std::fflush(nullptr);
  std::exit(exit_code);
}

SpawnedRank start_rank(const std::function<void(int)>& fn, int index, int nprocs) {
  auto pipe = comm::or_throw(base::make_pipe());
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw std::runtime_error("[cohort] spawn cannot fork rank " + std::to_string(index) + ": " +
                             base::errno_text(errno));
  if (pid == 0) run_rank(fn, index, nprocs, pipe.write_end.get(), parent);
  SpawnedRank rank;
  rank.pid = pid;
  rank.pidfd = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  rank.error_pipe = std::move(pipe.read_end);
  // Non-blocking: children that a rank leaves behind hold their end of the pipe, and the reader must not wait for them.
  if (!rank.pidfd || fcntl(rank.error_pipe.get(), F_SETFL, O_NONBLOCK) != 0) {
    const auto reason = base::errno_text(errno);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    throw std::runtime_error("[cohort] spawn cannot watch rank " + std::to_string(index) + ": " + reason);
  }
  rank.running = true;
  return rank;
}

}  // namespace

ProcessContext spawn(const std::function<void(int)>& fn, int nprocs, bool join) {
  if (nprocs < 1) throw std::invalid_argument("[cohort] spawn needs nprocs >= 1, got " + std::to_string(nprocs));
  refuse_other_threads();
  notice_ends();
  ProcessContext context;
  auto& ranks = comm::StartedRanks::of(context);
  // If a later rank cannot be started, the context's destructor ends the earlier ones.
  for (int i = 0; i < nprocs; ++i) ranks.push_back(start_rank(fn, i, nprocs));
  while (join && !context.join()) {
  }
  return context;
}

void spawn(const std::function<void(int)>& fn, int nprocs) { auto joined = spawn(fn, nprocs, /*join=*/true); }

}  // namespace cohort
