#include "cohort/base/process/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::base {

std::string ExitStatus::describe() const {
  return signal ? fmt::format("signal {} ({})", signal, signal_name(signal)) : fmt::format("exit code {}", code);
}

Error no_process(const std::string& what, int error_number) {
  Error error(fmt::format("{}: {}", what, errno_text(error_number)));
  if (error_number != EAGAIN) return error;
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NPROC, &limit);
  const std::string own = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  return std::move(error).with_hint(
      fmt::format("the limit on processes and threads has been reached: this user's (ulimit -u: {}) or the container's "
                  "(pids.max of its cgroup); raise it, end other processes, or start fewer workers",
                  own));
}

Result<std::string> find_program(const std::string& program) {
  if (program.empty()) return Error("no program given");
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), X_OK) == 0) return program;
    return Error(fmt::format("cannot execute \"{}\": {}", program, errno_text(errno)));
  }
  for (const std::string& folder : split(get_env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"), ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return Error(fmt::format("cannot find \"{}\" in PATH", program))
      .with_hint(fmt::format("write \"./{}\" for a program in the current folder", program));
}

void Process::swap(Process& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(session_, other.session_);
  std::swap(reaped_, other.reaped_);
  std::swap(status_, other.status_);
  std::swap(standard_output_, other.standard_output_);
  std::swap(standard_error_, other.standard_error_);
}

Process::~Process() {
  if (pid_ < 0 || reaped_) return;
  signal_group(SIGKILL);
  // Between fork and exec the child may not have a process group yet.
  if (!status_) ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<ExitStatus> Process::poll() {
  if (status_ || pid_ < 0) return status_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  status_ = info.si_code == CLD_EXITED ? ExitStatus{.code = info.si_status} : ExitStatus{.signal = info.si_status};
  return status_;
}

std::optional<ExitStatus> Process::wait_for(std::chrono::milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  while (!poll()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return std::nullopt;
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&entry, 1, left);
  }
  return status_;
}

ExitStatus Process::wait() {
  while (!wait_for(std::chrono::hours(1))) {
  }
  return *status_;
}

bool Process::signal(int signal_number) { return !poll() && ::kill(pid_, signal_number) == 0; }

bool Process::signal_group(int signal_number) { return pid_ >= 0 && !reaped_ && ::kill(-pid_, signal_number) == 0; }

void Process::reap() {
  if (reaped_ || !status_) return;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

}  // namespace cohort::base
