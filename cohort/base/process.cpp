#include "cohort/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <limits>

#include "cohort/base/env.h"
#include "cohort/base/text.h"

namespace cohort::base {
namespace {

/// Everything the child needs between fork and exec, prepared before: it may not allocate.
struct ChildPlan {
  const char* program = nullptr;
  char** arguments = nullptr;
  char** environment = nullptr;
  pid_t parent = 0;
  bool new_session = true;
  int output_fd = -1;
  int error_fd = -1;
  int failure_fd = -1;
  int announce_fd = -1;
  /// One bit per CPU, as the kernel takes them; nothing if empty.
  const std::vector<unsigned long>* cpu_mask = nullptr;
};

[[noreturn]] void run_child(const ChildPlan& plan) {
  const auto fail = [&]() {
    const int error_number = errno;
    (void)!::write(plan.failure_fd, &error_number, sizeof error_number);
    ::_exit(127);
  };
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  // The parent may have died before the line above; then nobody would ever send the signal.
  if (::getppid() != plan.parent) ::_exit(127);
  if (plan.new_session && ::setsid() < 0) fail();
  const pid_t self = ::getpid();
  // Where nobody reads any more (EPIPE) the program can run nevertheless.
  if (plan.announce_fd >= 0 && ::write(plan.announce_fd, &self, sizeof self) != sizeof self && errno != EPIPE) fail();
  if (plan.output_fd >= 0 && ::dup2(plan.output_fd, STDOUT_FILENO) < 0) fail();
  if (plan.error_fd >= 0 && ::dup2(plan.error_fd, STDERR_FILENO) < 0) fail();
  const auto& mask = *plan.cpu_mask;
  if (!mask.empty() && ::syscall(SYS_sched_setaffinity, 0, mask.size() * sizeof mask[0], mask.data()) < 0) fail();
  (void)::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  // Ignored first, which drops one that is pending from the write above.
  struct sigaction action {};
  for (const auto handler : {SIG_IGN, SIG_DFL}) {
    action.sa_handler = handler;
    (void)::sigaction(SIGPIPE, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.program, plan.arguments, plan.environment);
  fail();
  ::_exit(127);
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_lines(const ProcessOptions& options) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : options.environment ? *options.environment : environment()) {
    lines.push_back(name + "=" + value);
  }
  return lines;
}

std::vector<unsigned long> mask_of(const std::vector<int>& cpus) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    const auto bit = static_cast<size_t>(cpu);
    mask.resize(std::max(mask.size(), bit / kBits + 1));
    mask[bit / kBits] |= 1UL << (bit % kBits);
  }
  return mask;
}

/// The child's side of a stream, above the standard descriptors so that dup2 cannot overwrite another one.
Result<Fd> open_child_side(const Stream& stream, Fd& parent_side) {
  Fd fd;
  if (stream.kind == Stream::Kind::kInherit) return fd;
  if (stream.kind == Stream::Kind::kNull) {
    fd = Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  } else if (stream.kind == Stream::Kind::kFile) {
    Result<Fd> opened = open_for_writing(stream.path);
    if (!opened) return opened.error();
    fd = std::move(*opened);
  } else {
    Result<Pipe> pipe = make_pipe();
    if (!pipe) return pipe.error();
    fd = std::move(pipe->write_end);
    parent_side = std::move(pipe->read_end);
  }
  Fd high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  if (!high) return Error(fmt::format("cannot prepare a descriptor for the child: {}", errno_text(errno)));
  return high;
}

/// Forks with every signal blocked, so that no handler of ours runs in the child.
pid_t fork_child(const ChildPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan);
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error_number;
  return pid;
}

Error cannot_start(const std::string& name, Error cause) {
  return Error(fmt::format("cannot start \"{}\"", name)).caused_by(std::move(cause));
}

/// The errno of the step that failed before exec; 0 once the program runs.
int read_failure(int fd) {
  int error_number = 0;
  ssize_t count;
  do {
    count = ::read(fd, &error_number, sizeof error_number);
  } while (count < 0 && errno == EINTR);
  return count == sizeof error_number ? error_number : 0;
}

}  // namespace

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

Result<Process> Process::start(const ProcessOptions& options) {
  Result<Process> process = begin(options);
  if (!process) return process;
  if (Result<void> running = process->await_program(); !running) return running.error();
  return process;
}

Result<Process> Process::begin(const ProcessOptions& options) {
  const std::string name = options.arguments.empty() ? "" : options.arguments.front();
  const auto failed = [&](Error cause) { return cannot_start(name, std::move(cause)); };
  Result<std::string> program = find_program(name);
  if (!program) return failed(program.error());

  Process process;
  Result<Fd> output = open_child_side(options.standard_output, process.standard_output_);
  if (!output) return failed(output.error());
  Result<Fd> error = open_child_side(options.standard_error, process.standard_error_);
  if (!error) return failed(error.error());
  Result<Pipe> failure = make_pipe();
  if (!failure) return failed(failure.error());

  std::vector<std::string> arguments = options.arguments;
  std::vector<std::string> variables = environment_lines(options);
  std::vector<char*> argument_pointers = pointers_to(arguments);
  std::vector<char*> variable_pointers = pointers_to(variables);
  const std::vector<unsigned long> cpu_mask = mask_of(options.cpus);
  const pid_t pid = fork_child({.program = program->c_str(),
                                .arguments = argument_pointers.data(),
                                .environment = variable_pointers.data(),
                                .parent = ::getpid(),
                                .new_session = options.new_session,
                                .output_fd = output->get(),
                                .error_fd = error->get(),
                                .failure_fd = failure->write_end.get(),
                                .announce_fd = options.announce_fd,
                                .cpu_mask = &cpu_mask});
  if (pid < 0) return failed(no_process("fork", errno));
  process.pid_ = pid;
  process.owns_session_ = options.new_session;
  process.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.pidfd_) {
    return failed(Error(fmt::format("pidfd_open: {}", errno_text(errno))).with_hint("Linux 5.4 or later is needed"));
  }
  process.name_ = name;
  process.program_ = std::move(*program);
  process.exec_failure_ = std::move(failure->read_end);
  return process;
}

Result<void> Process::await_program() {
  const Fd failure = std::move(exec_failure_);
  const int error_number = failure ? read_failure(failure.get()) : 0;
  if (error_number == 0) return {};
  return cannot_start(name_, Error(fmt::format("cannot execute \"{}\": {}", program_, errno_text(error_number))));
}

void Process::swap(Process& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(owns_session_, other.owns_session_);
  std::swap(reaped_, other.reaped_);
  std::swap(status_, other.status_);
  std::swap(name_, other.name_);
  std::swap(program_, other.program_);
  std::swap(exec_failure_, other.exec_failure_);
  std::swap(standard_output_, other.standard_output_);
  std::swap(standard_error_, other.standard_error_);
}

Process::~Process() {
  if (pid_ < 0 || reaped_) return;
  signal_session(SIGKILL);
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
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!poll()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&entry, 1, static_cast<int>(std::min<long long>(left.count(), std::numeric_limits<int>::max())));
  }
  return status_;
}

ExitStatus Process::wait() {
  while (!wait_for(std::chrono::hours(1))) {
  }
  return *status_;
}

bool Process::signal(int signal_number) { return !poll() && ::kill(pid_, signal_number) == 0; }

bool Process::signal_session(int signal_number) {
  if (pid_ < 0 || reaped_) return false;
  return owns_session_ ? ::kill(-pid_, signal_number) == 0 : signal(signal_number);
}

void Process::reap() {
  if (reaped_ || !status_) return;
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

}  // namespace cohort::base
