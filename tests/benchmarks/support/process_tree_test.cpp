#include "benchmarks/support/process_tree.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <vector>

namespace cohort::bench {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

// A process that has this one's memory, until the test ends.
class SleepingChild {
 public:
  SleepingChild() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~SleepingChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  SleepingChild(const SleepingChild&) = delete;
  SleepingChild& operator=(const SleepingChild&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(ProcessTree, HasChildrenButForThoseLeftOut) {
  const SleepingChild child;
  const auto has = [](const std::vector<pid_t>& pids, pid_t pid) {
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  };
  EXPECT_TRUE(has(process_tree(::getpid()), child.pid()));
  EXPECT_TRUE(has(process_tree(::getpid()), ::getpid()));
  EXPECT_FALSE(has(process_tree(::getpid(), {child.pid()}), child.pid()));
  EXPECT_FALSE(has(process_tree(child.pid()), ::getpid()));
}

TEST(ProcessTree, MemoryThatIsSharedCountsOnce) {
  const std::vector<char> shared(128 * kMebibyte, 'x');
  const double alone = tree_memory(::getpid());
  EXPECT_GT(alone, 128);
  const SleepingChild child;
  EXPECT_LT(tree_memory(::getpid()), alone + 64);
  const double of_child = tree_memory(child.pid());
  EXPECT_GT(of_child, 32);  // its half
  EXPECT_LT(of_child, 128);
}

TEST(ProcessTree, OneThatHasEndedIsAnError) { EXPECT_THROW(tree_memory(1 << 30), std::runtime_error); }

TEST(ProcessTree, NumberAfterItsName) {
  EXPECT_EQ(number_after("[rollup]\nRss:  17 kB\nPss:   202 kB\nPss_Dirty: 3 kB\n", "Pss"), 202);
  EXPECT_EQ(number_after("[rollup]\nRss:  17 kB\n", "Pss"), 0);
}

}  // namespace
}  // namespace cohort::bench
