#include "cohort/base/system/process_state.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cohort::base {
namespace {

TEST(ProcessState, OfThisProcess) {
  const ProcessState state = read_process_state(getpid());
  EXPECT_TRUE(state.exists);
  EXPECT_EQ(state.state, 'R');
  EXPECT_FALSE(state.started_at.empty());
  EXPECT_FALSE(state.gone());
  EXPECT_FALSE(state.is_gone_since(state.started_at));
}

TEST(ProcessState, OfOneThatHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(7);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const ProcessState zombie = read_process_state(child);
  EXPECT_EQ(zombie.state, 'Z');
  EXPECT_TRUE(zombie.gone());
  EXPECT_EQ(WEXITSTATUS(zombie.wait_status), 7);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(read_process_state(child).exists);
  EXPECT_TRUE(read_process_state(child).is_gone_since(zombie.started_at));
}

TEST(ProcessState, AnotherProcessWithTheNumberIsNotTheOneThatWasMeant) {
  const ProcessState alive{.exists = true, .state = 'S', .started_at = "100"};
  EXPECT_FALSE(alive.is_gone_since("100"));
  EXPECT_TRUE(alive.is_gone_since("99"));
  EXPECT_FALSE(alive.is_gone_since("")) << "nobody has said when it began";
  const ProcessState hidden{.exists = true};
  EXPECT_FALSE(hidden.is_gone_since("100")) << "nobody can see when it began";
  EXPECT_TRUE(ProcessState{}.is_gone_since("100"));
}

constexpr int kNoNamespace = 77;

/// In a process that sees an empty /proc: 0 if it takes its parent for alive, and a number that nobody has for gone.
[[noreturn]] void look_without_proc(pid_t alive, const std::string& start) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
    _exit(kNoNamespace);
  }
  const bool knows_living = !read_process_state(alive).is_gone_since(start);
  const bool knows_gone = read_process_state(1 << 22).is_gone_since(start);
  _exit(knows_living && knows_gone ? 0 : 1);
}

TEST(ProcessState, WhereProcIsHiddenALivingProcessIsAlive) {
  const std::string start = read_process_state(getpid()).started_at;
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) look_without_proc(self, start);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no mount namespace without root";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cohort::base
