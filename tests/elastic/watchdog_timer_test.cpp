#include "cohort/elastic/processes/watchdog_timer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Pids = std::set<pid_t>;

TEST(TimerRequest, IsReadAsPythonWritesIt) {
  const auto request = parse_timer_request(
      R"({"version": 1, "pid": 4711, "scope_id": "train.py#12 \u00e4", "expiration_time": 1700000000.25, "signal": 9})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->pid, 4711);
  EXPECT_EQ(request->scope, "train.py#12 \xc3\xa4");
  EXPECT_EQ(request->expiration_time, 1700000000.25);
  EXPECT_EQ(request->signal, 9);
  EXPECT_EQ(parse_timer_request(R"({"pid": 1, "scope_id": "", "expiration_time": -1, "signal": -2})")->signal, -2);
}

TEST(TimerRequest, GarbageIsNone) {
  for (const char* line : {"", "x", "[]", "{}", R"({"pid": 1, "scope_id": "a", "expiration_time": 1})",
                           R"({"pid": "1", "scope_id": "a", "expiration_time": 1, "signal": 9})",
                           R"({"pid": 1, "scope_id": 5, "expiration_time": 1, "signal": 9})",
                           R"({"pid": 1, "scope_id": "a", "expiration_time": "1", "signal": 9})",
                           R"({"pid": 0, "scope_id": "a", "expiration_time": 1, "signal": 9})",
                           R"({"pid": -5, "scope_id": "a", "expiration_time": 1, "signal": 9})",
                           R"({"pid": 99999999999999999999, "scope_id": "a", "expiration_time": 1, "signal": 9})",
                           R"({"pid": 1, "scope_id": "a", "expiration_time": NaN, "signal": 9})",
                           R"({"pid": 1, "scope_id": "a", "expiration_time": 1, "signal": 1000})"}) {
    EXPECT_FALSE(parse_timer_request(line)) << line;
  }
}

/// A process that does nothing.
base::Process sleeper() { return base::Process::start({.arguments = {"sleep", "1000"}, .environment = {}}).value(); }

class WatchdogTimerTest : public testing::Test {
 protected:
  WatchdogTimerTest() : timer_(WatchdogTimer::create(folder_ / "pipe").value()) {}

  void write(const std::string& text) {
    const base::Fd pipe(::open(timer_.path().c_str(), O_WRONLY | O_NONBLOCK));
    ASSERT_TRUE(pipe);
    ASSERT_TRUE(base::write_all(pipe.get(), text));
  }
  void ask(pid_t pid, const std::string& scope, int expiration_time, int signal) {
    write(
        fmt::format("{{\"version\": 1, \"pid\": {}, \"scope_id\": \"{}\", \"expiration_time\": {}, \"signal\": {}}}\n",
                    pid, scope, expiration_time, signal));
  }
  /// What read() logs.
  std::string read(const Pids& workers) {
    testing::internal::CaptureStderr();
    timer_.read(workers);
    return testing::internal::GetCapturedStderr();
  }

  const test::TemporaryFolder folder_;
  WatchdogTimer timer_;
};

TEST_F(WatchdogTimerTest, EndsTheProcessThatOverrunsAndNamesTheBlock) {
  base::Process worker = sleeper();
  const Pids workers = {worker.pid()};
  ask(worker.pid(), "epoch\\n7", 100, SIGTERM);
  EXPECT_EQ(read(workers), "");
  EXPECT_EQ(timer_.next_expiration(), 100);
  EXPECT_TRUE(timer_.end_overruns(99, workers).empty());
  const std::vector<Overrun> overruns = timer_.end_overruns(100, workers);
  ASSERT_EQ(overruns.size(), 1u);
  EXPECT_EQ(overruns[0].pid, worker.pid());
  EXPECT_EQ(overruns[0].worker, worker.pid());
  EXPECT_EQ(overruns[0].signal, SIGTERM);
  EXPECT_EQ(overruns[0].describe(), "block \"epoch?7\" overran its timer");
  EXPECT_EQ(worker.wait_for(std::chrono::seconds(60)).value().signal, SIGTERM);
  EXPECT_FALSE(timer_.next_expiration());
}

TEST_F(WatchdogTimerTest, AReleasedBlockNeverOverruns) {
  base::Process worker = sleeper();
  const Pids workers = {worker.pid()};
  ask(worker.pid(), "a", 100, SIGKILL);
  ask(worker.pid(), "b", 200, SIGKILL);
  ask(worker.pid(), "a", -1, 0);
  ask(worker.pid(), "never begun", -1, 0);
  EXPECT_EQ(read(workers), "");
  EXPECT_EQ(timer_.next_expiration(), 200);
  ask(worker.pid(), "b", 300, SIGKILL);  // a second time: the later request counts
  EXPECT_EQ(read(workers), "");
  EXPECT_TRUE(timer_.end_overruns(250, workers).empty());
  EXPECT_FALSE(worker.poll());
}

TEST_F(WatchdogTimerTest, TheFirstThatNamesASignalCounts) {
  base::Process worker = sleeper();
  const Pids workers = {worker.pid()};
  ask(worker.pid(), "no signal", 10, 0);
  ask(worker.pid(), "later", 30, SIGTERM);
  ask(worker.pid(), "sooner", 20, SIGKILL);
  EXPECT_EQ(read(workers), "");
  const std::vector<Overrun> overruns = timer_.end_overruns(100, workers);
  ASSERT_EQ(overruns.size(), 1u);
  EXPECT_EQ(overruns[0].scope, "sooner");
  EXPECT_EQ(worker.wait_for(std::chrono::seconds(60)).value().signal, SIGKILL);
}

TEST_F(WatchdogTimerTest, WithoutASignalItIsOnlyReported) {
  base::Process worker = sleeper();
  ask(worker.pid(), "quiet", 10, -9);
  EXPECT_EQ(read({worker.pid()}), "");
  const std::vector<Overrun> overruns = timer_.end_overruns(100, {worker.pid()});
  ASSERT_EQ(overruns.size(), 1u);
  EXPECT_EQ(overruns[0].signal, 0);
  EXPECT_FALSE(worker.wait_for(std::chrono::milliseconds(50)));
}

TEST_F(WatchdogTimerTest, OthersProcessesAreLeftAloneMessage) {
  base::Process worker = sleeper();
  base::Process stranger = sleeper();
  const Pids workers = {worker.pid()};
  for (const pid_t pid : {stranger.pid(), ::getpid(), pid_t{1}}) ask(pid, "a", 100, SIGKILL);
  EXPECT_EQ(read(workers),
            fmt::format("[cohort] warning: ignoring a request to the watchdog timers through \"{}\": a timer for "
                        "process {}, which is not one of this job's workers; further cases are not reported\n",
                        timer_.path(), stranger.pid()));
  EXPECT_FALSE(timer_.next_expiration());
  // One that was a worker's when it asked, and is no more when the time has come.
  ask(worker.pid(), "a", 100, SIGKILL);
  EXPECT_EQ(read(workers), "");
  EXPECT_TRUE(timer_.end_overruns(200, {stranger.pid()}).empty());
  EXPECT_FALSE(worker.poll());
  EXPECT_FALSE(stranger.poll());
}

TEST_F(WatchdogTimerTest, AWorkersChildrenAreItsOwn) {
  base::Process worker = base::Process::start({.arguments = {"sh", "-c", "sleep 1000 & echo $!; wait $!; exit 5"},
                                               .environment = base::environment(),
                                               .standard_output = base::Stream::pipe()})
                             .value();
  char text[32] = {};
  ASSERT_GT(::read(worker.standard_output().get(), text, sizeof text - 1), 0);
  const pid_t child = std::stoi(text);
  ask(child, "load", 1, SIGKILL);
  EXPECT_EQ(read({worker.pid()}), "");
  const std::vector<Overrun> overruns = timer_.end_overruns(2, {worker.pid()});
  ASSERT_EQ(overruns.size(), 1u);
  EXPECT_EQ(overruns[0].pid, child);
  EXPECT_EQ(overruns[0].worker, worker.pid());
  EXPECT_EQ(worker.wait_for(std::chrono::seconds(60)).value().code, 5);
}

/// A worker that prints the pid of a child, and waits for it.
base::ProcessOptions parent_of(const std::string& child) {
  return {.arguments = {"bash", "-c", child + " & wait"},
          .environment = base::environment(),
          .standard_output = base::Stream::pipe()};
}

TEST_F(WatchdogTimerTest, ChildrenInOtherProcessGroupsBelongToTheirWorker) {
  const std::string child = "bash -c 'echo $$; exec sleep 1000'";
  std::vector<base::Process> workers =
      base::Process::start_together({parent_of(child), parent_of("set -m; (" + child + "; true)")}).value();
  char text[32] = {};
  ASSERT_GT(::read(workers[1].standard_output().get(), text, sizeof text - 1), 0);
  const pid_t pid = std::stoi(text);
  ASSERT_NE(::getpgid(pid), workers[1].pid());
  ask(pid, "load", 1, SIGKILL);
  const Pids both = {workers[0].pid(), workers[1].pid()};
  EXPECT_EQ(read(both), "");
  EXPECT_TRUE(timer_.end_overruns(2, {workers[0].pid()}).empty()) << "its worker has ended";
  ask(pid, "load", 1, SIGKILL);
  EXPECT_EQ(read(both), "");
  const std::vector<Overrun> overruns = timer_.end_overruns(2, both);
  ::kill(pid, SIGKILL);  // else it would outlive a failure of this test
  ASSERT_EQ(overruns.size(), 1u);
  EXPECT_EQ(overruns[0].pid, pid);
  EXPECT_EQ(overruns[0].worker, workers[1].pid());
}

TEST_F(WatchdogTimerTest, AChildThatHasLeftTheSessionIsLeftAloneMessage) {
  base::Process worker = base::Process::start(parent_of("setsid bash -c 'echo $$; exec sleep 1000'")).value();
  char text[32] = {};
  ASSERT_GT(::read(worker.standard_output().get(), text, sizeof text - 1), 0);
  const pid_t pid = std::stoi(text);
  ask(pid, "a", 1, SIGKILL);
  EXPECT_THAT(read({worker.pid()}),
              HasSubstr(fmt::format("a timer for process {}, which is not one of this job's workers", pid)));
  ::kill(pid, SIGKILL);
}

TEST_F(WatchdogTimerTest, GarbageIsSaidOnceAndBoundedMessage) {
  base::Process worker = sleeper();
  const Pids workers = {worker.pid()};
  write("hello\x01\n");
  EXPECT_EQ(read(workers), fmt::format("[cohort] warning: ignoring a request to the watchdog timers through \"{}\": "
                                       "\"hello?\"; further cases are not reported\n",
                                       timer_.path()));
  write("more\n" + std::string(40'000, 'x'));
  EXPECT_EQ(read(workers), "");
  write("end of the long line\n");
  ask(worker.pid(), "after it", 100, SIGKILL);
  EXPECT_EQ(read(workers), "");
  EXPECT_EQ(timer_.next_expiration(), 100);
}

TEST_F(WatchdogTimerTest, TooLongALineMessage) {
  write(std::string(5'000, 'x'));
  EXPECT_THAT(read({}), HasSubstr("\": a line of more than 4096 bytes; further cases are not reported\n"));
}

TEST_F(WatchdogTimerTest, NoMoreThan4096TimersMessage) {
  base::Process worker = sleeper();
  const Pids workers = {worker.pid()};
  std::string said;
  for (int i = 0; i < 4200; ++i) {
    ask(worker.pid(), std::to_string(i), 100, SIGKILL);
    if (i % 100 == 0) said += read(workers);
  }
  said += read(workers);
  EXPECT_THAT(said, HasSubstr("\": a timer when there are already 4096 others; further cases are not reported\n"));
}

TEST_F(WatchdogTimerTest, ForgetsTheRoundBefore) {
  base::Process worker = sleeper();
  ask(worker.pid(), "a", 100, SIGKILL);
  EXPECT_EQ(read({worker.pid()}), "");
  ask(worker.pid(), "b", 100, SIGKILL);
  timer_.forget();
  EXPECT_EQ(read({worker.pid()}), "");
  EXPECT_FALSE(timer_.next_expiration());
}

TEST(WatchdogTimerPath, IsTheOwnersAloneAndRemoved) {
  std::string path;
  {
    const WatchdogTimer timer = WatchdogTimer::create("").value();
    path = timer.path();
    EXPECT_THAT(path, HasSubstr("/torchelastic_timer_"));
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    EXPECT_EQ(std::filesystem::status(std::filesystem::path(path).parent_path()).permissions(),
              std::filesystem::perms(0700));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST(WatchdogTimerPath, ReplacesAPipeThatWasLeftBehind) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0666), 0);
  { EXPECT_EQ(WatchdogTimer::create(folder / "pipe").value().path(), folder / "pipe"); }
  EXPECT_FALSE(std::filesystem::exists(folder / "pipe"));
}

TEST(WatchdogTimerPath, TakesNobodysPipeAndNoFileMessage) {
  const test::TemporaryFolder folder;
  const WatchdogTimer first = WatchdogTimer::create(folder / "pipe").value();
  testing::internal::CaptureStderr();
  const WatchdogTimer second = WatchdogTimer::create(folder / "pipe").value();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: TORCHELASTIC_TIMER_FILE=\"" + (folder / "pipe") +
                "\" belongs to another launcher; this one makes its own pipe\n");
  EXPECT_THAT(second.path(), HasSubstr("/torchelastic_timer_"));
  ASSERT_TRUE(base::write_file_atomically(folder / "file", "precious"));
  EXPECT_EQ(WatchdogTimer::create(folder / "file").error().describe(),
            "cannot make the watchdog timers' named pipe \"" + (folder / "file") +
                "\": something else is there\n"
                "  hint: give TORCHELASTIC_TIMER_FILE a path that is free, or leave it unset");
  EXPECT_EQ(*base::read_file(folder / "file"), "precious");
  EXPECT_EQ(WatchdogTimer::create("/nowhere/at/all").error().describe(),
            "cannot make the watchdog timers' named pipe \"/nowhere/at/all\": No such file or directory (ENOENT)\n"
            "  hint: set TORCHELASTIC_TIMER_FILE to a path where this user may create files, or leave it unset");
}

}  // namespace
}  // namespace cohort::elastic
