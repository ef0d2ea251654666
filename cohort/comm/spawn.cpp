#include "cohort/comm/spawn.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/comm/threads.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGracePeriod = std::chrono::seconds(30);
constexpr size_t kMaxErrorBytes = 64 * 1024;

struct Rank {
  pid_t pid = -1;
  base::Fd pidfd;
  base::Fd error_pipe;  // the rank writes its exception's text here
  bool running = false;
  int status = 0;
};

// Threads other than this one would be missing in the forked ranks, with the locks they hold.
void refuse_other_threads() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(getpid())) continue;
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    names.push_back("\"" + name + "\"");
  }
  if (names.empty()) return;
  throw std::runtime_error("spawn must be called before the process starts threads, but " +
                           std::to_string(names.size()) + " run already: " + base::join(names, ", ") +
                           ". Call it first in main, before any tensor operation large enough to run in parallel, or "
                           "start the ranks with `cohort run`.");
}

std::string error_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

// The rank's whole life. Exits without running the parent's atexit handlers twice over.
[[noreturn]] void run_rank(const std::function<void(int)>& fn, int index, int nprocs, int error_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int exit_code = 0;
  try {
    comm::apply_default_thread_count(nprocs);
    fn(index);
  } catch (const std::exception& error) {
    const auto text = error_text(error).substr(0, kMaxErrorBytes);
    [[maybe_unused]] const auto result = base::write_all(error_fd, text.empty() ? "(no text)" : text);
    exit_code = 1;
  }
  std::fflush(nullptr);
  std::exit(exit_code);
}

Rank start_rank(const std::function<void(int)>& fn, int index, int nprocs) {
  auto pipe = base::make_pipe();
  if (!pipe) throw std::runtime_error(pipe.error().describe());
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw std::runtime_error("spawn cannot fork rank " + std::to_string(index) + ": " + base::errno_text(errno));
  if (pid == 0) run_rank(fn, index, nprocs, pipe->write_end.get(), parent);
  Rank rank;
  rank.pid = pid;
  rank.pidfd = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  rank.error_pipe = std::move(pipe->read_end);
  rank.running = true;
  return rank;
}

// Blocks until some rank has ended or `deadline` passes; returns its index, -1 at the deadline.
int wait_for_any(std::vector<Rank>& ranks, Clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> fds;
    for (const auto& rank : ranks) fds.push_back({rank.running ? rank.pidfd.get() : -1, POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return -1;
    poll(fds.data(), fds.size(), static_cast<int>(std::min<long long>(left, 1'000'000)));
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].running && waitpid(ranks[i].pid, &ranks[i].status, WNOHANG) == ranks[i].pid) {
        ranks[i].running = false;
        return static_cast<int>(i);
      }
    }
  }
}

bool any_running(const std::vector<Rank>& ranks) {
  for (const auto& rank : ranks) {
    if (rank.running) return true;
  }
  return false;
}

void signal_all(const std::vector<Rank>& ranks, int signal_number) {
  for (const auto& rank : ranks) {
    if (rank.running) kill(rank.pid, signal_number);
  }
}

void end_all(std::vector<Rank>& ranks) {
  signal_all(ranks, SIGTERM);
  const auto deadline = Clock::now() + kGracePeriod;
  while (any_running(ranks) && wait_for_any(ranks, deadline) >= 0) {
  }
  signal_all(ranks, SIGKILL);
  while (any_running(ranks)) wait_for_any(ranks, Clock::now() + std::chrono::hours(1));
}

// A pipe holds 64 KiB, so the rank was never blocked on writing its text.
std::string read_error_text(const Rank& rank) {
  std::string text(kMaxErrorBytes, '\0');
  const auto length = read(rank.error_pipe.get(), text.data(), text.size());
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

[[noreturn]] void throw_failure(const Rank& rank, int index) {
  const auto process = "process " + std::to_string(index) + " terminated with ";
  if (WIFSIGNALED(rank.status)) {
    const int number = WTERMSIG(rank.status);
    throw ProcessExitedError(process + "signal " + base::signal_name(number), index, rank.pid, -number);
  }
  const auto text = read_error_text(rank);
  if (!text.empty()) {
    throw ProcessRaisedError(
        "\n\n-- Process " + std::to_string(index) + " terminated with the following error:\n" + text, index, rank.pid);
  }
  const int code = WEXITSTATUS(rank.status);
  throw ProcessExitedError(process + "exit code " + std::to_string(code), index, rank.pid, code);
}

// Ends the ranks if anything throws while they are being started.
struct Ranks {
  std::vector<Rank> list;
  ~Ranks() {
    if (any_running(list)) end_all(list);
  }
};

}  // namespace

void spawn(const std::function<void(int)>& fn, int nprocs) {
  if (nprocs < 1) throw std::invalid_argument("spawn needs nprocs >= 1, got " + std::to_string(nprocs));
  refuse_other_threads();
  Ranks ranks;
  for (int i = 0; i < nprocs; ++i) ranks.list.push_back(start_rank(fn, i, nprocs));
  while (any_running(ranks.list)) {
    const int index = wait_for_any(ranks.list, Clock::now() + std::chrono::hours(1));
    if (index < 0 || ranks.list[index].status == 0) continue;
    end_all(ranks.list);
    throw_failure(ranks.list[index], index);
  }
}

}  // namespace cohort
