#include "cohort/base/process/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <iostream>
#include <stdexcept>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/machine/cpu_topology.h"
#include "tests/support/rank_processes.h"
#include "tests/support/wait_until_gone.h"

namespace cohort::base {
namespace {

using namespace std::chrono_literals;

COHORT_WORKER(prints_rank) { std::cout << "rank " << std::getenv("RANK") << "\n"; }
COHORT_WORKER(throws_on_rank_1) {
  if (std::string(std::getenv("RANK")) == "1") throw std::runtime_error("rank 1 gives up");
}
COHORT_WORKER(starts_a_child) {
  const Process child = Process::start({.arguments = {"sleep", "1000"}}).value();
  std::cout << child.pid() << "\n";
  ::pause();
}
COHORT_WORKER(sleeps) {
  std::cout << "ready\n";
  for (;;) ::pause();
}

std::string read_to_end(Fd& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(fd.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  return text;
}

ProcessOptions shell(const std::string& script) {
  return {.arguments = {"sh", "-c", script}, .standard_output = Stream::pipe()};
}

TEST(Process, ReturnsExitCodeAndOutput) {
  Process process = Process::start(shell("echo hello; exit 3")).value();
  EXPECT_EQ(read_to_end(process.standard_output()), "hello\n");
  const ExitStatus status = process.wait();
  EXPECT_EQ(status.returncode(), 3);
  EXPECT_EQ(status.describe(), "exit code 3");
}

TEST(Process, EnvironmentIsExactlyTheGivenOne) {
  ProcessOptions options = {
      .arguments = {"/usr/bin/env"}, .environment = {{{"A", "1"}, {"B", "x=y"}}}, .standard_output = Stream::pipe()};
  Process process = Process::start(options).value();
  EXPECT_EQ(read_to_end(process.standard_output()), "A=1\nB=x=y\n");
}

TEST(Process, KilledBySignal) {
  Process process = Process::start(shell("kill -9 $$")).value();
  const ExitStatus status = process.wait();
  EXPECT_EQ(status.returncode(), -SIGKILL);
  EXPECT_EQ(status.describe(), "signal 9 (SIGKILL)");
}

TEST(Process, WaitForGivesUpAndSignalEndsIt) {
  Process process = Process::start({.arguments = {"sleep", "1000"}}).value();
  EXPECT_EQ(process.wait_for(1ms), std::nullopt);
  EXPECT_TRUE(process.signal(SIGTERM));
  EXPECT_EQ(process.wait().signal, SIGTERM);
  process.reap();
  EXPECT_FALSE(process.signal_group(SIGTERM));
}

TEST(Process, WaitForHasAnyTime) {
  Process process = Process::start(shell("sleep 0.05; exit 3")).value();
  const auto status = process.wait_for(std::chrono::milliseconds::max());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->returncode(), 3);
}

TEST(Process, DestructorKillsGroupWithGrandchild) {
  std::string grandchild;
  {
    Process process = Process::start(shell("sleep 1000 & echo $!; wait")).value();
    char buffer[32];
    const ssize_t count = ::read(process.standard_output().get(), buffer, sizeof buffer);
    ASSERT_GT(count, 1);
    grandchild.assign(buffer, static_cast<size_t>(count) - 1);
    ASSERT_EQ(::kill(std::stoi(grandchild), 0), 0);
  }
  EXPECT_TRUE(test::wait_until_gone(std::stoi(grandchild)));
}

TEST(Process, StartsWithoutSignalsBlockedOrSigpipeIgnored) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, &old);
  Process process = Process::start(shell("grep -E 'SigBlk' /proc/self/status; kill -PIPE $$")).value();
  EXPECT_EQ(read_to_end(process.standard_output()), "SigBlk:\t0000000000000000\n");
  EXPECT_EQ(process.wait().signal, SIGPIPE);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ::signal(SIGPIPE, before);
}

TEST(Process, HasTheDefaultAtALimitOnTheSizeOfFiles) {
  survive_size_limit();
  Process process = Process::start(shell("grep SigIgn /proc/self/status")).value();
  const std::string text = read_to_end(process.standard_output());
  const auto ignored = std::stoull(text.substr(std::string("SigIgn:\t").size()), nullptr, 16);
  EXPECT_EQ(ignored >> (SIGXFSZ - 1) & 1, 0u) << text;
}

COHORT_WORKER(starts_with_few_descriptors) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (limit.rlim_cur = 0;; ++limit.rlim_cur) {
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto processes = Process::start_together(std::vector<ProcessOptions>(16, {.arguments = {"true"}}));
    if (processes) return;
    std::cout << processes.error().describe() << "\n\n";
  }
}

TEST(Process, TooManyOpenFilesMessage) {
  const auto results = test::run_workers("starts_with_few_descriptors", {.world_size = 1});
  results.expect_success();
  EXPECT_THAT(results[0].output, testing::HasSubstr("\n  caused by: pidfd_open: Too many open files (EMFILE)\n"
                                                    "  hint: raise the limit of open files (ulimit -n)\n\n"));
}

TEST(Process, InheritsOnlyStandardDescriptors) {
  const Fd open_here(::open("/dev/null", O_RDONLY));
  Process process = Process::start(shell("ls /proc/self/fd | wc -l")).value();
  // 0, 1, 2 and the folder that ls reads.
  EXPECT_EQ(read_to_end(process.standard_output()), "4\n");
}

TEST(Process, AnnouncesItselfBeforeTheProgramRuns) {
  Pipe pipe = make_pipe().value();
  Process process = Process::start({.arguments = {"true"}, .announce_fd = pipe.write_end.get()}).value();
  pid_t announced = 0;
  ASSERT_EQ(::read(pipe.read_end.get(), &announced, sizeof announced), sizeof announced);
  EXPECT_EQ(announced, process.pid());
}

TEST(Process, RunsThoughNobodyReadsItsAnnouncement) {
  Pipe pipe = make_pipe().value();
  pipe.read_end.reset();
  Process process = Process::start({.arguments = {"true"}, .announce_fd = pipe.write_end.get()}).value();
  EXPECT_TRUE(process.wait().ok()) << "no SIGPIPE waits in the program";
}

TEST(Process, NoMoreProcessesMessage) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NPROC, &limit), 0);
  const std::string own = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  EXPECT_EQ(no_process("fork", EAGAIN).describe(),
            "fork: Resource temporarily unavailable (EAGAIN)\n"
            "  hint: the limit on processes and threads has been reached: this user's (ulimit -u: " +
                own +
                ") or the container's (pids.max of its cgroup); raise it, end other processes, or start fewer workers");
  EXPECT_EQ(no_process("fork", ENOMEM).describe(), "fork: Cannot allocate memory (ENOMEM)");
}

TEST(Process, RunsOnTheGivenCpus) {
  const int cpu = allowed_cpus().back();
  ProcessOptions options = shell("grep Cpus_allowed_list /proc/self/status");
  options.cpus = {cpu};
  Process process = Process::start(options).value();
  EXPECT_EQ(read_to_end(process.standard_output()), "Cpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST(Process, MissingProgramMessage) {
  EXPECT_EQ(Process::start({.arguments = {"no-such-program-here"}}).error().describe(),
            "cannot start \"no-such-program-here\"\n"
            "  caused by: cannot find \"no-such-program-here\" in PATH\n"
            "  hint: write \"./no-such-program-here\" for a program in the current folder");
  EXPECT_EQ(Process::start({.arguments = {"/etc/passwd"}}).error().describe(),
            "cannot start \"/etc/passwd\"\n"
            "  caused by: cannot execute \"/etc/passwd\": Permission denied (EACCES)");
}

TEST(Process, DiesWithItsParent) {
  test::Workers workers("starts_a_child", {.world_size = 1});
  workers.wait_for_output(0, "\n");
  workers.signal(0, SIGKILL);
  const test::WorkerResult result = workers.wait()[0];
  EXPECT_EQ(result.exit_code, -SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(std::stoi(result.output)));
}

TEST(RankProcesses, ReturnsOutputOfEachRank) {
  const test::WorkerResults results = test::run_workers("prints_rank", {.world_size = 3});
  results.expect_success();
  EXPECT_EQ(results[2].output, "rank 2\n");
}

TEST(RankProcesses, ExceptionEndsWithOneAndItsText) {
  const test::WorkerResults results = test::run_workers("throws_on_rank_1");
  EXPECT_EQ(results[0].exit_code, 0);
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_EQ(results[1].errors, "rank 1 gives up\n");
}

TEST(RankProcesses, KilledRankShowsItsSignal) {
  test::Workers workers("sleeps", {.world_size = 2});
  workers.wait_for_output(0, "ready");
  workers.wait_for_output(1, "ready");
  workers.signal(0, SIGKILL);
  workers.signal(1, SIGTERM);
  const test::WorkerResults results = workers.wait();
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  EXPECT_EQ(results[1].exit_code, -SIGTERM);
  EXPECT_FALSE(results[0].timed_out);
}

TEST(RankProcesses, TimeLimitKillsAndSaysSo) {
  const test::WorkerResults results = test::run_workers("sleeps", {.world_size = 1, .time_limit = 5s});
  EXPECT_TRUE(results[0].timed_out);
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  EXPECT_EQ(results[0].output, "ready\n");
}

}  // namespace
}  // namespace cohort::base
