/// A child process that cannot outlive this one: started with exec, watched through a pidfd, killed by the kernel when this
/// process dies.
///
///     Result<Process> child = Process::start({.arguments = {"sleep", "60"}});
///     child->signal_group(SIGTERM);
///     std::optional<ExitStatus> status = child->wait_for(std::chrono::seconds(5));
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// How a process ended: with an exit code, or by a signal.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  /// The exit code, or minus the signal's number, as Python's subprocess counts.
  int returncode() const { return signal ? -signal : code; }
  /// Returns "exit code 3" or "signal 9 (SIGKILL)".
  std::string describe() const;
};

/// The destination of a child's standard output or error.
struct Stream {
  enum class Kind { kInherit, kNull, kPipe, kFile };
  Kind kind = Kind::kInherit;
  std::string path;  // for kFile; created with mode 0600, emptied if it exists
  static Stream inherit() { return {}; }
  static Stream null() { return {Kind::kNull, {}}; }
  static Stream pipe() { return {Kind::kPipe, {}}; }
  static Stream file(std::string path) { return {Kind::kFile, std::move(path)}; }
};

struct ProcessOptions {
  /// The program, then its arguments. A program without a slash is looked up in PATH.
  std::vector<std::string> arguments;
  /// The child's complete environment. If absent, the child has this process's environment.
  std::optional<std::map<std::string, std::string>> environment;
  Stream standard_output;
  Stream standard_error;
  /// A child that leads a session writes its pid (a pid_t) to this pipe before it starts anything. The pipe's reader then knows
  /// the session of every program that runs, even if this process dies in the middle of a start. -1 means no pipe. A pipe that
  /// nobody reads causes no error.
  int announce_fd = -1;
  /// The CPUs that the child may run on. If empty, those of this process.
  std::vector<int> cpus;
};

/// Returns the file that exec would start for `program`: itself if it has a slash, else the first match in PATH.
Result<std::string> find_program(const std::string& program);

/// Returns an error for a process or thread that the kernel did not start: "fork: Resource temporarily unavailable (EAGAIN)",
/// with a hint at the limits that may be the reason.
Error no_process(const std::string& what, int error_number);

/// A child process. Each leads a process group of its own in another session, so signals typed at the terminal do not reach it.
/// The kernel kills the child when the *thread* that started it ends, so start children from a thread that stays.
/// Thread-safety: one thread at a time per object.
class Process {
 public:
  /// Blocks until the child runs its program; a failed exec is an error here. Safe in a process with other threads: between fork
  /// and exec it calls only async-signal-safe functions.
  static Result<Process> start(const ProcessOptions& options);
  /// Starts all processes side by side in one session. Use it for processes that wait for each other: Linux may share CPU time
  /// among sessions first (sched_autogroup), and then a yield lets in only threads of the same session. If the kernel refuses
  /// (CLONE_PARENT), each process gets a session of its own. After an error no child is left, and `failed` is the index of the
  /// one that could not be started. `is_stopped`, which may be null, is asked before each start; if it returns true, no child is
  /// left and the result is empty.
  static Result<std::vector<Process>> start_together(const std::vector<ProcessOptions>& options,
                                                     const std::function<bool()>& is_stopped = nullptr,
                                                     size_t* failed = nullptr);

  Process(Process&& other) noexcept { swap(other); }
  Process& operator=(Process&& other) noexcept {
    Process taken(std::move(other));
    swap(taken);
    return *this;
  }
  /// Kills the process group and reaps the child.
  ~Process();

  pid_t pid() const { return pid_; }
  /// The session of the child: the pid of the first process that was started together with it.
  pid_t session() const { return session_; }
  /// Readable once the child has ended; for poll and epoll.
  int pidfd() const { return pidfd_.get(); }
  /// Read ends of the pipes that were asked for; empty otherwise.
  Fd& standard_output() { return standard_output_; }
  Fd& standard_error() { return standard_error_; }

  /// Returns how the child ended, without blocking; nothing while it runs. The child stays a zombie until reap(), so that its pid
  /// and process group cannot be reused.
  std::optional<ExitStatus> poll();
  /// Blocks until the child has ended or the timeout is over; returns nothing after a timeout.
  std::optional<ExitStatus> wait_for(std::chrono::milliseconds timeout);
  ExitStatus wait();

  /// Sends a signal to the child alone. Returns false if it has ended.
  bool signal(int signal_number);
  /// Sends a signal to the child's process group: the child and what it started, except processes in groups of their own.
  bool signal_group(int signal_number);
  /// Frees the pid. Requires that poll, wait_for or wait has returned a status. No signals may be sent afterwards.
  void reap();
  /// Forgets the child: it is neither killed nor waited for. For a child that not even SIGKILL ends.
  void abandon() { reaped_ = true; }

 private:
  class Batch;
  Process() = default;
  void swap(Process& other) noexcept;

  pid_t pid_ = -1;
  pid_t session_ = -1;
  Fd pidfd_;
  bool reaped_ = false;
  std::optional<ExitStatus> status_;
  Fd standard_output_;
  Fd standard_error_;
};

}  // namespace cohort::base
