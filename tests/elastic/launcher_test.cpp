// The built `cohort run` with real processes: kills, signals, stubborn workers, output. POSIX shell scripts are the
// workers, so that no rank needs LibTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "tests/elastic/launcher.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until_gone.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;
using testing::Not;
/// The launcher's children: one worker and the guard, in the order of their start.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  const std::string pid = std::to_string(parent);
  for (const std::string& child : base::split(*base::read_file("/proc/" + pid + "/task/" + pid + "/children"), ' ')) {
    if (const auto number = base::parse_int(child)) children.push_back(static_cast<pid_t>(*number));
  }
  return children;
}

/// "$$$$" reaches the shell as "$$": the launcher halves dollars, as torchrun does.
const std::string kWaitForever = "sleep 1000 & child=$!; echo pid$LOCAL_RANK=$$$$ child$LOCAL_RANK=$child; wait";

TEST(Launcher, SuccessIsZeroAndSilent) {
  Launcher launcher({"--nproc-per-node=3"}, "echo rank $RANK of $WORLD_SIZE");
  EXPECT_EQ(launcher.finish(), 0);
  for (const char* line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"}) {
    EXPECT_THAT(launcher.output(), HasSubstr(line));
  }
  EXPECT_EQ(launcher.errors(), "");
}

TEST(Launcher, FailedWorkerStopsTheOthersAndIsReported) {
  Launcher launcher({"--nproc-per-node=2"}, "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 1000");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("failed with exit code 3; stopping the other workers with SIGTERM\n"));
  EXPECT_THAT(launcher.errors(), HasSubstr("\nsh FAILED\n"));
  const size_t root = launcher.errors().find("Root Cause");
  ASSERT_NE(root, std::string::npos);
  EXPECT_THAT(launcher.errors().substr(root), HasSubstr("  rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: "));
  EXPECT_THAT(launcher.errors().substr(0, root), HasSubstr("  exitcode  : -15 (pid: "));
}

TEST(Launcher, KilledWorkerIsNamedBySignal) {
  Launcher launcher({"--nproc-per-node=2"}, kWaitForever);
  launcher.wait_for_output("child0=");
  launcher.wait_for_output("child1=");
  ASSERT_EQ(::kill(launcher.number_after("pid1="), SIGKILL), 0);
  EXPECT_EQ(launcher.finish(), 1);
  const std::string pid = std::to_string(launcher.number_after("pid1="));
  EXPECT_THAT(launcher.errors(), HasSubstr("rank 1 (pid " + pid + ") failed with signal 9 (SIGKILL)"));
  EXPECT_THAT(launcher.errors(), HasSubstr("  traceback : Signal 9 (SIGKILL) received by PID " + pid));
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("child1=")));
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("child0=")));
}

TEST(Launcher, KilledLauncherTakesWorkersAndGrandchildrenAlong) {
  Launcher launcher({"--nproc-per-node=2"}, kWaitForever + "; echo end");
  launcher.wait_for_output("child0=");
  launcher.wait_for_output("child1=");
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.finish(), -SIGKILL);  // the workers hold the streams: their end is the workers' end
  for (const char* name : {"pid0=", "pid1=", "child0=", "child1="}) {
    EXPECT_TRUE(test::wait_until_gone(launcher.number_after(name))) << name;
  }
  EXPECT_THAT(launcher.output(), Not(HasSubstr("end")));
}

TEST(Launcher, KilledLauncherTakesOtherProcessGroupsAlong) {
  Launcher launcher(run_words({"--no-python", "bash", "-c", "set -m; sleep 1000 & echo child=$!; wait"}));
  launcher.wait_for_output("child=");
  launcher.wait_for_output("\n");
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.finish(), -SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("child=")));
}

TEST(Launcher, WorkersShareASessionAndEachLeadsAProcessGroup) {
  // In /proc/<pid>/stat: the parent, the process group and the session.
  Launcher launcher({"--nproc-per-node=3"},
                    "set -- $(cat /proc/$$$$/stat); echo pid$RANK=$$$$ parent$RANK=$4 group$RANK=$5 session$RANK=$6");
  ASSERT_EQ(launcher.finish(), 0);
  for (const std::string rank : {"0", "1", "2"}) {
    EXPECT_EQ(launcher.number_after("parent" + rank + "="), launcher.pid());
    EXPECT_EQ(launcher.number_after("group" + rank + "="), launcher.number_after("pid" + rank + "="));
    EXPECT_EQ(launcher.number_after("session" + rank + "="), launcher.number_after("pid0="));
  }
}

TEST(Launcher, OtherProcessGroupsLeftBehindAreEnded) {
  Launcher launcher(run_words({"--nproc-per-node=2", "--no-python", "bash", "-c",
                               "set -m; sleep 1000 > /dev/null 2>&1 & disown; echo child$RANK=$!"}));
  EXPECT_EQ(launcher.finish(), 0);
  for (const char* name : {"child0=", "child1="}) {
    EXPECT_TRUE(test::wait_until_gone(launcher.number_after(name)));
  }
}

TEST(Launcher, KilledLauncherLeavesNoTemporaryFolder) {
  const test::TemporaryFolder folder;
  Words command =
      run_words({"--no-python", "sh", "-c", "echo file=$TORCHELASTIC_ERROR_FILE pid=$$$$; exec sleep 1000"});
  command.insert(command.begin(), {"env", "TMPDIR=" + folder.path()});
  Launcher launcher(command);
  launcher.wait_for_output("\n");
  EXPECT_THAT(launcher.output(), HasSubstr("file=" + folder.path() + "/torchelastic_"));
  const std::vector<pid_t> children = children_of(launcher.pid());
  ASSERT_EQ(children.size(), 2u);
  ASSERT_EQ(children[1], launcher.number_after("pid="));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.finish(), -SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(children[0]));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Launcher, ForwardsSignalAndEndsWithOne) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const std::string name = std::to_string(signal);
    Launcher launcher({"--nproc-per-node=2"}, "trap 'echo got " + name + "; exit 0' " + name +
                                                  "; echo ready$LOCAL_RANK; while :; do sleep 1000 & wait; done");
    launcher.wait_for_output("ready0");
    launcher.wait_for_output("ready1");
    launcher.signal(signal);
    EXPECT_EQ(launcher.finish(), 1);
    const size_t first = launcher.output().find("got " + name);
    ASSERT_NE(first, std::string::npos) << launcher.errors();
    EXPECT_NE(launcher.output().find("got " + name, first + 1), std::string::npos);
    EXPECT_THAT(launcher.errors(), HasSubstr(", forwarding it to the workers\n"));
    EXPECT_THAT(launcher.errors(), HasSubstr("[cohort] error: sh was stopped by SIG"));
  }
}

TEST(Launcher, StubbornWorkerIsKilledAfterTheTimeout) {
  Launcher launcher({"--nproc-per-node=2", "--shutdown-timeout=0.2"},
                    "trap '' TERM; echo pid$LOCAL_RANK=$$$$ ready$LOCAL_RANK; while :; do sleep 1000; done");
  launcher.wait_for_output("ready0");
  launcher.wait_for_output("ready1");
  ASSERT_EQ(::kill(launcher.number_after("pid1="), SIGKILL), 0);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("no end after 200 ms: killing rank 0 (pid "));
  const std::string pid = std::to_string(launcher.number_after("pid0="));
  EXPECT_THAT(launcher.errors(), HasSubstr("  exitcode  : -9 (pid: " + pid + ")  (SIGKILL)\n"));
}

TEST(Launcher, SecondInterruptKillsAtOnce) {
  Launcher launcher({"--shutdown-timeout=1000"},
                    "trap 'echo got it' INT; echo ready; while :; do sleep 1000 & wait; done");
  launcher.wait_for_output("ready");
  launcher.signal(SIGINT);
  launcher.wait_for_output("got it");
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("received SIGINT while stopping: killing rank 0 (pid "));
}

TEST(Launcher, StoppedWorkerCanBeEnded) {
  Launcher launcher({"--nproc-per-node=2"}, kWaitForever);
  launcher.wait_for_output("child0=");
  launcher.wait_for_output("child1=");
  ASSERT_EQ(::kill(launcher.number_after("pid0="), SIGSTOP), 0);
  ASSERT_EQ(::kill(launcher.number_after("pid1="), SIGKILL), 0);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("  exitcode  : -15 (pid: "));
}

TEST(Launcher, ProcessLeftBehindIsEnded) {
  Launcher launcher({}, "sleep 1000 > /dev/null 2>&1 & echo child=$!");
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("child="), std::chrono::milliseconds(1)));
  EXPECT_THAT(launcher.errors(), HasSubstr("(sleep), left behind by a worker\n"));
}

/// A worker that starts a process in a session of its own, out of reach of signals to the worker's.
std::string with_daemon(const std::string& rest) {
  return "setsid -f sh -c 'echo daemon=$$$$ ready; exec sleep 1000 >/dev/null 2>&1'; " + rest;
}

TEST(Launcher, DaemonLeftBehindIsEnded) {
  Launcher launcher({"--nproc-per-node=2"}, with_daemon("sleep 0.2"));
  EXPECT_EQ(launcher.finish(), 0);
  for (size_t at = 0, count = 0; count < 2; ++count, ++at) {
    at = launcher.output().find("daemon=", at);
    ASSERT_NE(at, std::string::npos);
    EXPECT_TRUE(test::wait_until_gone(std::stoi(launcher.output().substr(at + 7)), std::chrono::milliseconds(1)));
  }
  EXPECT_THAT(launcher.errors(), HasSubstr("(sleep), left behind by a worker\n"));
}

TEST(Launcher, StoppedLauncherTakesDaemonsAlong) {
  Launcher launcher({}, with_daemon("exec sleep 1000"));
  launcher.wait_for_output("ready");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("daemon="), std::chrono::milliseconds(1)));
}

TEST(Launcher, KilledLauncherTakesDaemonsAlong) {
  Launcher launcher({}, with_daemon("exec sleep 1000"));
  launcher.wait_for_output("ready");
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.finish(), -SIGKILL);
  EXPECT_TRUE(test::wait_until_gone(launcher.number_after("daemon=")));
}

// It belongs to whoever started the launcher, not to a worker.
TEST(Launcher, ChildThatWasThereBeforeTheLauncherStays) {
  Launcher launcher(
      {"sh", "-c",
       "sleep 1000 >/dev/null 2>&1 & echo child=$! ready; exec " + launcher_path() + " run --no-python true"});
  launcher.wait_for_output("ready");
  EXPECT_EQ(launcher.finish(), 0);
  const int child = launcher.number_after("child=");
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "it was ended";
  EXPECT_THAT(launcher.errors(), Not(HasSubstr("left behind")));
}

// Whoever lets many short daemons go during a long job leaves no zombies.
TEST(Launcher, DaemonsThatEndAreReaped) {
  Launcher launcher({}, "for i in 1 2 3 4 5; do setsid -f true; done; echo ready; exec sleep 1000");
  launcher.wait_for_output("ready");
  const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
  while (children_of(launcher.pid()).size() > 2 && std::chrono::steady_clock::now() < deadline) ::usleep(10'000);
  EXPECT_EQ(children_of(launcher.pid()).size(), 2u) << "the worker and the guard";
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.finish(), 1);
}

TEST(Launcher, CanBeInterruptedWhileItStartsWorkers) {
  Launcher launcher({"--nproc-per-node=20000", "--log-dir=/dev/null"}, "exec sleep 1000");
  while (children_of(launcher.pid()).size() < 10) ::usleep(1000);
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("[cohort] warning: received SIGINT while starting the workers; stopping\n"));
  EXPECT_THAT(launcher.errors(), HasSubstr("was stopped by SIGINT\n"));
}

TEST(Launcher, SmallStacksAreEnough) {
  Launcher launcher(
      {"sh", "-c",
       "ulimit -s 64; exec " + launcher_path() + " run --nproc-per-node=2 --tee=3 --no-python seq 1 20000"});
  EXPECT_EQ(launcher.finish(), 0) << launcher.errors();
  EXPECT_THAT(launcher.output(), HasSubstr(":20000\n"));
}

TEST(Launcher, HangupIgnoredByNohupStaysIgnored) {
  Words command = run_words({"--no-python", "sh", "-c", "echo ready; exec sleep 1000"});
  command.insert(command.begin(), {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"});
  Launcher launcher(command);
  launcher.wait_for_output("ready");
  launcher.signal(SIGHUP);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("received SIGTERM"));
  EXPECT_THAT(launcher.errors(), Not(HasSubstr("SIGHUP")));
}

TEST(Launcher, TeePrefixesLinesAndKeepsFiles) {
  const test::TemporaryFolder folder;
  Launcher launcher(
      {"--nproc-per-node=2", "--tee=3", "--role=trainer", "--local-ranks-filter=1", "--log-dir", folder.path()},
      "echo out $RANK; echo err $RANK >&2; printf rest");
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_EQ(launcher.output(), "[trainer1]:out 1\n[trainer1]:rest\n");
  EXPECT_EQ(launcher.errors(), "[trainer1]:err 1\n");
  const std::string attempt = std::filesystem::directory_iterator(folder.path())->path().string() + "/attempt_0/";
  EXPECT_EQ(*base::read_file(attempt + "0/stdout.log"), "out 0\nrest");
  EXPECT_EQ(*base::read_file(attempt + "1/stderr.log"), "err 1\n");
}

TEST(Launcher, RedirectedStreamsStayOffTheConsole) {
  const test::TemporaryFolder folder;
  Launcher launcher({"-r1", "--log_dir=" + folder.path()}, "echo out; echo err >&2");
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_EQ(launcher.output(), "");
  EXPECT_EQ(launcher.errors(), "err\n");
}

TEST(Launcher, MuchTeedOutputArrivesWhole) {
  const test::TemporaryFolder folder;
  Launcher launcher({"--nproc-per-node=2", "--tee=1", "--log-dir=" + folder.path()},
                    "i=0; while [ $i -lt 20000 ]; do echo line $i of rank $RANK; i=$((i+1)); done");
  EXPECT_EQ(launcher.finish(), 0);
  std::map<std::string, int> next;
  size_t begin = 0;
  for (size_t end; (end = launcher.output().find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string rank = launcher.output().substr(begin + 8, 1);
    const std::string expected = "[default" + rank + "]:line " + std::to_string(next[rank]++) + " of rank " + rank;
    ASSERT_EQ(launcher.output().substr(begin, end - begin), expected);
  }
  EXPECT_EQ(next, (std::map<std::string, int>{{"0", 20000}, {"1", 20000}}));
}

TEST(Launcher, ErrorFileOfAWorkerIsReported) {
  const test::TemporaryFolder folder;
  Launcher launcher({"--log-dir=" + folder.path()},
                    R"(echo '{"message": "disk full", "timestamp": 1}' > "$TORCHELASTIC_ERROR_FILE"; exit 4)");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("  error_file: " + folder.path()));
  EXPECT_THAT(launcher.errors(), HasSubstr("  traceback : disk full\n"));
}

// A worker can make anything in the place of its error file.
TEST(Launcher, APipeAsAnErrorFileDoesNotHoldTheLauncherUp) {
  const test::TemporaryFolder folder;
  Launcher launcher({"--log-dir=" + folder.path()}, R"(mkfifo "$TORCHELASTIC_ERROR_FILE"; exit 4)");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("  error_file: <N/A>\n"));
}

// Nor in those of the attempt that follows.
TEST(Launcher, APipeAsALogFileOfARestartIsAnError) {
  const test::TemporaryFolder folder;
  Launcher launcher(
      {"--log-dir=" + folder.path(), "--redirects=3", "--max-restarts=1"},
      R"(cd "${TORCHELASTIC_ERROR_FILE%/*}/../.."; mkdir -p attempt_1/0; mkfifo attempt_1/0/stdout.log; exit 4)");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_THAT(launcher.errors(), HasSubstr("/attempt_1/0/stdout.log\": No such device or address (ENXIO)\n"));
}

TEST(Launcher, ALimitOnTheSizeOfFilesEndsATeedLogAndNotTheJob) {
  const test::TemporaryFolder folder;
  Launcher launcher({"sh", "-c",
                     "ulimit -f 8; exec " + launcher_path() + " run --tee=1 --log-dir=" + folder.path() +
                         " --no-python sh -c 'seq 1 20000'"});
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr(":20000\n"));
  EXPECT_THAT(launcher.errors(), HasSubstr("/attempt_0/0/stdout.log\" ends here; the job goes on\n"));
  EXPECT_THAT(launcher.errors(), HasSubstr("File too large (EFBIG)\n"));
}

TEST(Launcher, PassesTheRootCauseOnToTheLauncherAbove) {
  const test::TemporaryFolder folder;
  Words command = run_words(
      {"--no-python", "sh", "-c", R"(echo '{"message": {"message": "bad"}}' > "$TORCHELASTIC_ERROR_FILE"; exit 4)"});
  command.insert(command.begin(),
                 {"env", "TMPDIR=" + folder.path(), "TORCHELASTIC_ERROR_FILE=" + folder.path() + "/up"});
  Launcher launcher(command);
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(*base::read_file(folder / "up"), R"({"message":{"errorCode":4,"message":"bad"}})");
}

TEST(Launcher, MissingProgramMessage) {
  Launcher launcher(run_words({"./no_such_program"}));
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(launcher.errors(),
            "[cohort] error: cohort run: cannot execute \"./no_such_program\": No such file or directory (ENOENT)\n");
}

TEST(Launcher, UsageErrorsEndWithTwo) {
  Launcher unknown(run_words({"--nproc-per-nods", "2", "x"}));
  EXPECT_EQ(unknown.finish(), 2);
  EXPECT_THAT(unknown.errors(), HasSubstr("unknown flag --nproc-per-nods (did you mean \"--nproc-per-node\"?)"));
  Launcher torchruns(run_words({"--logs-specs=default", "true"}));
  EXPECT_EQ(torchruns.finish(), 0) << torchruns.errors();
  Launcher specs(run_words({"--logs-specs=mine", "x"}));
  EXPECT_EQ(specs.finish(), 2);
  EXPECT_EQ(
      specs.errors(),
      "[cohort] error: cohort run: --logs-specs=mine names a plug-in of Python's torchrun, which this launcher cannot "
      "load\n  hint: use --log-dir, --redirects, --tee and the filters to choose where output goes\n");
  Launcher method(run_words({"--start-method=frok", "x"}));
  EXPECT_EQ(method.finish(), 2);
  EXPECT_EQ(method.errors(),
            "[cohort] error: cohort run: --start-method=frok must be spawn, fork or forkserver (did you mean "
            "\"fork\"?)\n");
  Launcher none(run_words({}));
  EXPECT_EQ(none.finish(), 2);
  Launcher command(Words{launcher_path(), "rnu"});
  EXPECT_EQ(command.finish(), 2);
  EXPECT_EQ(command.errors(),
            "[cohort] error: \"rnu\" is not a command of cohort (did you mean \"run\"?)\n"
            "  hint: cohort --help lists the commands\n");
}

TEST(Launcher, PetVariablesGiveDefaults) {
  Words command = run_words({"--no-python", "sh", "-c", "echo $WORLD_SIZE $ROLE_NAME"});
  command.insert(command.begin(), {"env", "PET_NPROC_PER_NODE=2", "PET_ROLE=from_env"});
  Launcher launcher(command);
  EXPECT_EQ(launcher.finish(), 0);
  EXPECT_EQ(launcher.output(), "2 from_env\n2 from_env\n");

  command.insert(command.end() - 4, "--role=typed");
  Launcher typed(command);
  EXPECT_EQ(typed.finish(), 0);
  EXPECT_EQ(typed.output(), "2 typed\n2 typed\n");
}

}  // namespace
}  // namespace cohort::elastic
