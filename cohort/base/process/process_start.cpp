// Starts children: prepares all that they need and forks the first, which starts the others.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <utility>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/process/child.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

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

/// Opens the child's side of a stream, above the standard descriptors so that dup2 cannot overwrite another one.
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

/// Reads the next report. Returns false once every child runs its program or has ended.
bool read_report(int fd, ChildReport* report) {
  ssize_t count;
  do {
    count = ::read(fd, report, sizeof *report);
  } while (count < 0 && errno == EINTR);
  return count == sizeof *report;
}

/// Whether the error means a refusal: some kernels and system call filters do not let a child start children of its parent.
bool is_refusal(int error_number) { return error_number == EINVAL || error_number == ENOSYS || error_number == EPERM; }

}  // namespace

/// Children that are being started. Those that are not taken are killed.
class Process::Batch {
 public:
  Batch(const std::vector<ProcessOptions>& options, const std::function<bool()>& is_stopped)
      : options_(options), is_stopped_(is_stopped), size_(options.size()), memory_(size_) {
    for (size_t i = 0; i < size_; ++i) processes_.push_back(Process());
    plan_.children.resize(size_);
    plan_.parent = ::getpid();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    if (plan_.pids) ::munmap(plan_.pids, size_ * sizeof(pid_t));
  }

  /// Returns false if is_stopped returned true.
  Result<bool> start() {
    for (current_ = 0; current_ < size_; ++current_) {
      if (Result<void> prepared = prepare(current_); !prepared) return prepared.error();
    }
    current_ = 0;
    if (Result<void> shared = share_pids(); !shared) return shared.error();
    while (current_ < size_) {
      const Result<bool> begun = run_session(current_, is_refused_ ? current_ + 1 : size_);
      if (!begun || !*begun) return begun;
    }
    memory_.clear();
    for (current_ = 0; current_ < size_; ++current_) {
      if (Result<void> opened = open_pidfd(processes_[current_]); !opened) return opened.error();
    }
    return true;
  }

  std::vector<Process> take() { return std::move(processes_); }
  /// The child that an error is about.
  size_t current() const { return current_; }

 private:
  /// The memory that a child's plan points to.
  struct Memory {
    std::string program;
    std::vector<std::string> arguments;
    std::vector<std::string> variables;
    std::vector<char*> argument_pointers;
    std::vector<char*> variable_pointers;
    Fd output;
    Fd error;
  };

  bool shall_stop() const { return is_stopped_ && is_stopped_(); }
  Result<void> prepare(size_t child);
  Result<void> share_pids();
  Result<bool> run_session(size_t first, size_t end);
  Result<bool> hear(int fd, size_t end);
  static Error why_missing(Process& leader);
  static Result<void> open_pidfd(Process& process);

  const std::vector<ProcessOptions>& options_;
  const std::function<bool()>& is_stopped_;
  const size_t size_;
  size_t current_ = 0;
  bool is_refused_ = false;
  std::vector<Memory> memory_;
  FamilyPlan plan_;
  std::vector<Process> processes_;
};

Result<void> Process::Batch::prepare(size_t child) {
  const ProcessOptions& options = options_[child];
  Memory& memory = memory_[child];
  Result<std::string> program = find_program(options.arguments.empty() ? "" : options.arguments.front());
  if (!program) return program.error();
  memory.program = std::move(*program);
  Result<Fd> output = open_child_side(options.standard_output, processes_[child].standard_output_);
  if (!output) return output.error();
  memory.output = std::move(*output);
  Result<Fd> error = open_child_side(options.standard_error, processes_[child].standard_error_);
  if (!error) return error.error();
  memory.error = std::move(*error);
  memory.arguments = options.arguments;
  memory.variables = environment_lines(options);
  memory.argument_pointers = pointers_to(memory.arguments);
  memory.variable_pointers = pointers_to(memory.variables);
  plan_.children[child] = {.program = memory.program.c_str(),
                           .arguments = memory.argument_pointers.data(),
                           .environment = memory.variable_pointers.data(),
                           .output_fd = memory.output.get(),
                           .error_fd = memory.error.get(),
                           .announce_fd = options.announce_fd,
                           .cpu_mask = mask_of(options.cpus)};
  return {};
}

Result<void> Process::Batch::share_pids() {
  void* memory = ::mmap(nullptr, size_ * sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error(fmt::format("mmap: {}", errno_text(errno)));
  plan_.pids = static_cast<pid_t*>(memory);
  return {};
}

/// Starts the children from `first` to `end` in a new session, and moves `current_` to the first that has not been started.
Result<bool> Process::Batch::run_session(size_t first, size_t end) {
  if (shall_stop()) return false;
  Result<Pipe> reports = make_pipe();
  if (!reports) return reports.error();
  const Fd go(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!go) return Error(fmt::format("eventfd: {}", errno_text(errno)));
  plan_.report_fd = reports->write_end.get();
  plan_.go_fd = go.get();
  const pid_t leader = fork_session(plan_, first, end);
  if (leader < 0) return no_process("fork", errno);
  plan_.pids[first] = leader;
  processes_[first].pid_ = processes_[first].session_ = leader;
  reports->write_end.reset();
  Result<bool> heard = hear(reports->read_end.get(), end);
  // It starts no more children then, and all that it has started are known.
  if (!heard || !*heard) processes_[first] = Process();
  for (size_t child = first + 1; child < end && plan_.pids[child] != 0; ++child) {
    processes_[child].pid_ = plan_.pids[child];
    processes_[child].session_ = leader;
  }
  if (!heard || !*heard) return heard;
  while (current_ < end && plan_.pids[current_] != 0) ++current_;
  if (current_ < end && !is_refused_) return why_missing(processes_[first]);
  return true;
}

/// Lets the leader start the children up to `end`, one after the other, and returns when each started child runs its program or
/// has ended. Returns false if is_stopped returned true.
Result<bool> Process::Batch::hear(int fd, size_t end) {
  for (ChildReport report; read_report(fd, &report);) {
    if (report.error_number == 0) {
      if (report.child + 1 == end) continue;
      if (shall_stop()) return false;
      constexpr uint64_t kOne = 1;
      (void)!::write(plan_.go_fd, &kOne, sizeof kOne);
      continue;
    }
    const bool is_there = plan_.pids[report.child] != 0;
    if (!is_there && is_refusal(report.error_number)) {
      is_refused_ = true;
      continue;
    }
    current_ = report.child;
    if (!is_there) return no_process("fork", report.error_number);
    return Error(
        fmt::format("cannot execute \"{}\": {}", memory_[report.child].program, errno_text(report.error_number)));
  }
  return true;
}

/// Returns the error for a child that the leader of its session did not start.
Error Process::Batch::why_missing(Process& leader) {
  if (const Result<void> opened = open_pidfd(leader); !opened) return opened.error();
  return Error(fmt::format("process {}, which was to start it, ended with {}", leader.pid_, leader.wait().describe()));
}

Result<void> Process::Batch::open_pidfd(Process& process) {
  process.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid_, 0)));
  if (process.pidfd_) return {};
  const int reason = errno;
  Error error(fmt::format("pidfd_open: {}", errno_text(reason)));
  if (reason == ENOSYS) return std::move(error).with_hint("use Linux 5.4 or later");
  return with_space_hint(std::move(error), reason, "");
}

Result<std::vector<Process>> Process::start_together(const std::vector<ProcessOptions>& options,
                                                     const std::function<bool()>& is_stopped, size_t* failed) {
  if (options.empty()) return std::vector<Process>();
  Batch batch(options, is_stopped);
  Result<bool> started = batch.start();
  if (started && *started) return batch.take();
  if (started) return std::vector<Process>();
  if (failed) *failed = batch.current();
  const std::vector<std::string>& arguments = options[batch.current()].arguments;
  return Error(fmt::format("cannot start \"{}\"", arguments.empty() ? "" : arguments.front()))
      .caused_by(std::move(started).error());
}

Result<Process> Process::start(const ProcessOptions& options) {
  Result<std::vector<Process>> processes = start_together({options});
  if (!processes) return processes.error();
  return std::move(processes->front());
}

}  // namespace cohort::base
