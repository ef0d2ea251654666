#include "tests/support/fault_points.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <set>

namespace cohort::test {
namespace {

// Of these the first argument is a descriptor, and 0 to 2 do not count.
const std::map<uint64_t, const char*>& calls_on_descriptors() {
  static const std::map<uint64_t, const char*> calls = {
      {SYS_write, "write"},   {SYS_writev, "writev"},       {SYS_pwrite64, "pwrite64"},   {SYS_pwritev, "pwritev"},
      {SYS_fsync, "fsync"},   {SYS_fdatasync, "fdatasync"}, {SYS_ftruncate, "ftruncate"}, {SYS_fallocate, "fallocate"},
      {SYS_fchmod, "fchmod"}, {SYS_flock, "flock"},         {SYS_read, "read"},           {SYS_pread64, "pread64"}};
  return calls;
}

const std::map<uint64_t, const char*>& calls_on_names() {
  static const std::map<uint64_t, const char*> calls = {
      {SYS_openat, "openat"},     {SYS_mkdirat, "mkdirat"},       {SYS_unlinkat, "unlinkat"},
      {SYS_renameat, "renameat"}, {SYS_renameat2, "renameat2"},   {SYS_linkat, "linkat"},
      {SYS_fchmodat, "fchmodat"}, {SYS_getdents64, "getdents64"},
#ifdef __x86_64__
      {SYS_open, "open"},         {SYS_creat, "creat"},           {SYS_mkdir, "mkdir"},
      {SYS_rmdir, "rmdir"},       {SYS_unlink, "unlink"},         {SYS_rename, "rename"},
      {SYS_link, "link"},
#endif
  };
  return calls;
}

// Null for calls that do not count.
[[maybe_unused]] const char* name_of_call(const __ptrace_syscall_info& info) {
  const auto named = calls_on_names().find(info.entry.nr);
  if (named != calls_on_names().end()) return named->second;
  const auto found = calls_on_descriptors().find(info.entry.nr);
  return found != calls_on_descriptors().end() && info.entry.args[0] > STDERR_FILENO ? found->second : nullptr;
}

int run_in_child(const std::function<int()>& fn) {
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 125;
  std::raise(SIGSTOP);
  try {
    return fn();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 124;
  }
}

#ifdef __x86_64__

void set_register(pid_t thread, size_t offset, long long value) {
  ::ptrace(PTRACE_POKEUSER, thread, offset, reinterpret_cast<void*>(value));
}

class Tracer {
 public:
  Tracer(pid_t child, const FaultPoint& point) : child_(child), point_(point) {}

  FaultOutcome run() {
    int status = 0;
    ::waitpid(child_, &status, __WALL);
    constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    ::ptrace(PTRACE_SETOPTIONS, child_, nullptr, reinterpret_cast<void*>(kOptions));
    go_on(child_, 0);
    while (next()) {
    }
    return outcome_;
  }

 private:
  void go_on(pid_t thread, int signal) {
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(static_cast<long>(signal)));
  }

  // One stop of one thread. False when the process has ended.
  bool next() {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL | __WNOTHREAD);
    if (thread < 0) return errno == EINTR;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child_) return true;
      if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcome_.exit_code = WTERMSIG(status) == SIGKILL ? -1 : -2;
      return false;
    }
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      at_call(thread);
      go_on(thread, 0);
    } else {
      // A new thread begins with SIGSTOP; an event of ours comes as SIGTRAP.
      go_on(thread, signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
    }
    return true;
  }

  void at_call(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      if (failing_.erase(thread)) set_register(thread, offsetof(user_regs_struct, rax), -point_.error_number);
      return;
    }
    const char* const name = info.op == PTRACE_SYSCALL_INFO_ENTRY ? name_of_call(info) : nullptr;
    if (!name) return;
    outcome_.calls.emplace_back(name);
    if (outcome_.calls.size() != static_cast<size_t>(point_.call)) return;
    outcome_.was_reached = true;
    outcome_.call = name;
    if (point_.error_number == 0) {
      ::kill(child_, SIGKILL);
    } else {
      set_register(thread, offsetof(user_regs_struct, orig_rax), -1);
      failing_.insert(thread);
    }
  }

  const pid_t child_;
  const FaultPoint point_;
  FaultOutcome outcome_;
  std::set<pid_t> failing_;
};

#endif

}  // namespace

FaultOutcome run_with_fault(const std::function<int()>& fn, const FaultPoint& point) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_in_child(fn));
#ifdef __x86_64__
  return Tracer(child, point).run();
#else
  (void)point;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ADD_FAILURE() << "faults cannot be injected on this processor";
  return {};
#endif
}

std::string folder_for_faults() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir(); }

bool can_inject_faults() {
#ifdef __x86_64__
  static const bool can = [] { return run_with_fault([] { return 7; }, {}).exit_code == 7; }();
  return can;
#else
  return false;
#endif
}

}  // namespace cohort::test
