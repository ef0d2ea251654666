#include "cohort/base/process/child.h"

#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "cohort/base/file/disk_space.h"

namespace cohort::base {
namespace {

void report(const FamilyPlan& plan, size_t child, int error_number) {
  const ChildReport report{child, error_number};
  (void)!::write(plan.report_fd, &report, sizeof report);
}

[[noreturn]] void fail(const FamilyPlan& plan, size_t child) {
  report(plan, child, errno);
  ::_exit(127);
}

void die_with_parent(const FamilyPlan& plan, size_t child) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(plan, child);
  // The parent may have died before the line above; then the signal would never come.
  if (::getppid() != plan.parent) ::_exit(127);
}

[[noreturn]] void run_program(const FamilyPlan& family, size_t child) {
  const ChildPlan& plan = family.children[child];
  if (plan.output_fd >= 0 && ::dup2(plan.output_fd, STDOUT_FILENO) < 0) fail(family, child);
  if (plan.error_fd >= 0 && ::dup2(plan.error_fd, STDERR_FILENO) < 0) fail(family, child);
  const auto& mask = plan.cpu_mask;
  if (!mask.empty() && ::syscall(SYS_sched_setaffinity, 0, mask.size() * sizeof mask[0], mask.data()) < 0) {
    fail(family, child);
  }
  (void)::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  // Ignores the signal first, which drops a pending one from a write to a pipe that nobody reads.
  struct sigaction action {};
  for (const auto handler : {SIG_IGN, SIG_DFL}) {
    action.sa_handler = handler;
    (void)::sigaction(SIGPIPE, &action, nullptr);
  }
  if (has_size_limit_survived()) (void)::sigaction(SIGXFSZ, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(plan.program, plan.arguments, plan.environment);
  fail(family, child);
}

/// A fork whose child is a child of our parent: the parent can wait for it and is told of its end. On other processors the
/// arguments after the third have another order, but all are 0.
long fork_sibling(pid_t* pid) {
  *pid = 0;  // also makes sure that the page exists and that the kernel can write to it
  return ::syscall(SYS_clone, CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD, 0, pid, 0, 0);
}

void start_others(const FamilyPlan& plan, size_t first, size_t end) {
  for (size_t child = first + 1; child < end; ++child) {
    uint64_t go = 0;
    const bool may_start = ::read(plan.go_fd, &go, sizeof go) == sizeof go;
    const long pid = may_start ? fork_sibling(&plan.pids[child]) : -1;
    if (pid == 0) {
      die_with_parent(plan, child);
      if (::setpgid(0, 0) != 0) fail(plan, child);
      run_program(plan, child);
    }
    report(plan, child, pid < 0 ? errno : 0);
    if (pid < 0) return;
  }
}

[[noreturn]] void lead_session(const FamilyPlan& plan, size_t first, size_t end) {
  die_with_parent(plan, first);
  if (::setsid() < 0) fail(plan, first);
  const int fd = plan.children[first].announce_fd;
  const pid_t self = ::getpid();
  // If nobody reads any more (EPIPE), the program can still run.
  if (fd >= 0 && ::write(fd, &self, sizeof self) != sizeof self && errno != EPIPE) fail(plan, first);
  report(plan, first, 0);
  start_others(plan, first, end);
  run_program(plan, first);
}

}  // namespace

// Blocks every signal, so that no handler of ours runs in a child.
pid_t fork_session(const FamilyPlan& plan, size_t first, size_t end) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) lead_session(plan, first, end);
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error_number;
  return pid;
}

}  // namespace cohort::base
