#include "cohort/shm/report/dump_signal.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/report/dump.h"

namespace cohort::shm {
namespace {

// Written before the handler is installed, constant afterwards.
int wake_fd = -1;
pid_t owner = -1;

/// Async-signal-safe. A forked child has the handler, but neither the thread nor groups.
void wake_dump_thread(int) {
  const int saved_errno = errno;
  const uint64_t one = 1;
  if (::getpid() == owner) {
    [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
  }
  errno = saved_errno;
}

void serve_requests(int signal) {
  ::pthread_setname_np(::pthread_self(), "cohort-trace");
  for (;;) {
    uint64_t num_requests = 0;
    const ssize_t size = ::read(wake_fd, &num_requests, sizeof num_requests);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return;
    const std::string path = dump_traces("", base::ExitStatus{0, signal}.describe());
    if (!path.empty()) say_where(path);
  }
}

/// Returns 0 if there is none.
int wanted_signal() {
  const std::string name = base::get_env("COHORT_TRACE_SIGNAL").value_or("SIGUSR1");
  if (name.empty() || name == "0") return 0;
  if (const auto number = base::signal_number(name)) return *number;
  base::warn_once("COHORT_TRACE_SIGNAL=\"" + name + "\" is not a signal's name; no signal asks for a trace dump");
  return 0;
}

void start_listening() {
  const int signal = wanted_signal();
  struct sigaction action {};
  if (signal == 0 || ::sigaction(signal, nullptr, &action) != 0) return;
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) return;
  wake_fd = ::eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) return;
  owner = ::getpid();
  // The thread takes no signals, which are for the program's own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool has_thread = true;
  try {
    std::thread(serve_requests, signal).detach();
  } catch (const std::exception&) {
    has_thread = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!has_thread) return;
  action = {};
  action.sa_handler = wake_dump_thread;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void listen_to_dump_signal() noexcept {
  static std::once_flag once;
  try {
    std::call_once(once, start_listening);
  } catch (const std::exception&) {
    // If there is no memory for a text, there is none for a dump either.
  }
}

}  // namespace cohort::shm
