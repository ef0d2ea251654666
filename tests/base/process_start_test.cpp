#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/machine/cpu_topology.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/process_state.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until_gone.h"

namespace cohort::base {
namespace {

std::string read_all(Fd& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(fd.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, count);
  return text;
}

std::string read_line(Fd& fd) {
  std::string text;
  for (char c; ::read(fd.get(), &c, 1) == 1 && c != '\n';) text += c;
  return text;
}

ProcessOptions script(const std::string& text) {
  return {.arguments = {"sh", "-c", text}, .standard_output = Stream::pipe()};
}

std::vector<ProcessOptions> sleepers(size_t count) {
  return std::vector<ProcessOptions>(count, {.arguments = {"sleep", "1000"}});
}

bool has_children() { return ::waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD; }

/// From now on this process's children get `answer` when they ask for a child of their parent.
void answer_clone_parent(unsigned answer) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PARENT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    throw std::runtime_error("no filter of system calls");
  }
}

COHORT_WORKER(starts_three_where_siblings_are_refused) {
  answer_clone_parent(SECCOMP_RET_ERRNO | EPERM);
  std::vector<ProcessOptions> options(3, script("echo $$ of $PPID; exec sleep 1000"));
  std::vector<Process> processes = Process::start_together(options).value();
  for (Process& process : processes) {
    const bool is_alone = process.session() == process.pid() && ::getsid(process.pid()) == process.pid();
    const std::string said = read_line(process.standard_output());
    if (said == fmt::format("{} of {}", process.pid(), ::getpid()) && is_alone) std::cout << "as it should be\n";
  }
  size_t failed = 9;
  options[1].arguments = {"/etc/passwd"};
  std::cout << Process::start_together(options, nullptr, &failed).error().message() << " " << failed << "\n";
}

COHORT_WORKER(starts_three_where_there_is_no_more_process) {
  answer_clone_parent(SECCOMP_RET_ERRNO | EAGAIN);
  size_t failed = 9;
  const Error error = Process::start_together(sleepers(3), nullptr, &failed).error();
  std::cout << (error.describe() == Error("cannot start \"sleep\"").caused_by(no_process("fork", EAGAIN)).describe())
            << " " << failed << " " << has_children() << "\n";
}

COHORT_WORKER(starts_three) {
  std::vector<Process> processes = Process::start_together(sleepers(3)).value();
  for (const Process& process : processes) std::cout << process.pid() << " ";
  std::cout << "\n";
  ::pause();
}

TEST(StartTogether, OneSessionAndAGroupForEach) {
  const std::vector<Process> processes = Process::start_together(sleepers(3)).value();
  ASSERT_EQ(processes.size(), 3u);
  for (const Process& process : processes) {
    EXPECT_EQ(process.session(), processes[0].pid());
    EXPECT_EQ(::getsid(process.pid()), processes[0].pid());
    EXPECT_EQ(::getpgid(process.pid()), process.pid());
    EXPECT_EQ(read_process_state(process.pid()).parent, ::getpid());
  }
  EXPECT_NE(::getsid(0), processes[0].pid());
}

TEST(StartTogether, NoneIsNone) { EXPECT_TRUE(Process::start_together({}).value().empty()); }

TEST(StartTogether, EachHasItsOwnOptions) {
  std::vector<ProcessOptions> options;
  const std::vector<int> cpus = allowed_cpus();
  for (const int cpu : {cpus.front(), cpus.back(), cpus.front()}) {
    options.push_back(
        script("echo $NAME; grep -h -E 'SigBlk|Cpus_allowed_list' /proc/self/status; ls /proc/self/fd | wc -l"));
    options.back().environment = {{"NAME", std::to_string(options.size())}, {"PATH", ::getenv("PATH")}};
    options.back().cpus = {cpu};
  }
  std::vector<Process> processes = Process::start_together(options).value();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read_all(processes[i].standard_output()),
              fmt::format("{}\nSigBlk:\t0000000000000000\nCpus_allowed_list:\t{}\n4\n", i + 1, options[i].cpus[0]));
  }
}

TEST(StartTogether, ASignalReachesOneGroup) {
  std::vector<Process> processes =
      Process::start_together(
          {script("exec sleep 1000"), script("sleep 1000 & echo $!; wait"), script("exec sleep 1000")})
          .value();
  const pid_t child = std::stoi(read_line(processes[1].standard_output()));
  EXPECT_TRUE(processes[1].signal_group(SIGKILL));
  EXPECT_EQ(processes[1].wait().signal, SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(child));
  EXPECT_FALSE(processes[0].poll());
  EXPECT_FALSE(processes[2].poll());
  // The first, though it leads the session.
  EXPECT_TRUE(processes[0].signal_group(SIGTERM));
  EXPECT_EQ(processes[0].wait().signal, SIGTERM);
  EXPECT_FALSE(processes[2].poll());
}

TEST(StartTogether, TheSessionIsAnnouncedOnce) {
  Pipe pipe = make_pipe().value();
  std::vector<ProcessOptions> options = sleepers(3);
  for (ProcessOptions& each : options) each.announce_fd = pipe.write_end.get();
  const std::vector<Process> processes = Process::start_together(options).value();
  pipe.write_end.reset();
  const std::string announced = read_all(pipe.read_end);
  const pid_t session = processes[0].pid();
  EXPECT_EQ(announced, std::string(reinterpret_cast<const char*>(&session), sizeof session));
}

TEST(StartTogether, AProgramThatCannotRunMessage) {
  const test::TemporaryFolder folder;
  const std::string program = folder / "script";
  ASSERT_TRUE(write_file_atomically(program, "#!/no/such/shell\n"));
  ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
  for (size_t broken = 0; broken < 3; ++broken) {
    std::vector<ProcessOptions> options = sleepers(3);
    options[broken].arguments = {program};
    size_t failed = 9;
    EXPECT_EQ(Process::start_together(options, nullptr, &failed).error().describe(),
              "cannot start \"" + program + "\"\n  caused by: cannot execute \"" + program +
                  "\": No such file or directory (ENOENT)");
    EXPECT_EQ(failed, broken);
    EXPECT_FALSE(has_children());
    options[broken].arguments = {"no-such-program-here"};
    failed = 9;
    EXPECT_EQ(Process::start_together(options, nullptr, &failed).error().message(),
              "cannot start \"no-such-program-here\"");
    EXPECT_EQ(failed, broken);
  }
}

TEST(StartTogether, IsStoppedBeforeAnyOfThem) {
  for (int last = 0; last < 3; ++last) {
    int asked = 0;
    const auto is_stopped = [&] { return asked++ == last; };
    EXPECT_TRUE(Process::start_together(sleepers(3), is_stopped).value().empty());
    EXPECT_EQ(asked, last + 1);
    EXPECT_FALSE(has_children());
  }
  int asked = 0;
  EXPECT_EQ(Process::start_together(sleepers(3), [&] { return ++asked > 3; }).value().size(), 3u);
}

// Killed by a stranger, before it has started the third.
TEST(StartTogether, TheOneThatStartsTheOthersDiesMessage) {
  Pipe pipe = make_pipe().value();
  std::vector<ProcessOptions> options = sleepers(4);
  options[0].announce_fd = pipe.write_end.get();
  pid_t first = 0;
  int asked = 0;
  const auto kill_first = [&] {
    if (++asked == 3 && ::read(pipe.read_end.get(), &first, sizeof first) > 0) ::kill(first, SIGKILL);
    return false;
  };
  size_t failed = 9;
  const Error error = Process::start_together(options, kill_first, &failed).error();
  EXPECT_EQ(error.describe(),
            fmt::format(
                "cannot start \"sleep\"\n  caused by: process {}, which was to start it, ended with signal 9 (SIGKILL)",
                first));
  EXPECT_EQ(failed, 2u);
  EXPECT_FALSE(has_children());
}

TEST(StartTogether, AllDieWithTheThreadThatStartedThem) {
  std::vector<Process> processes;
  std::thread([&] { processes = Process::start_together(sleepers(3)).value(); }).join();
  for (Process& process : processes) EXPECT_EQ(process.wait().signal, SIGKILL);
}

TEST(StartTogether, AllDieWithTheirParent) {
  test::Workers workers("starts_three", {.world_size = 1});
  workers.wait_for_output(0, "\n");
  workers.signal(0, SIGKILL);
  std::istringstream pids(workers.wait()[0].output);
  for (pid_t pid; pids >> pid;) EXPECT_TRUE(test::wait_until_gone(pid));
}

TEST(StartTogether, WhereTheKernelRefusesEachHasASession) {
  const test::WorkerResults results = test::run_workers("starts_three_where_siblings_are_refused", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].output, "as it should be\nas it should be\nas it should be\ncannot start \"/etc/passwd\" 1\n");
}

TEST(StartTogether, NoMoreProcessesForAnotherMessage) {
  const test::WorkerResults results =
      test::run_workers("starts_three_where_there_is_no_more_process", {.world_size = 1});
  EXPECT_EQ(results[0].output, "1 1 0\n") << results[0].errors;
}

}  // namespace
}  // namespace cohort::base
