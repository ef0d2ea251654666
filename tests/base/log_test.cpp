#include "cohort/base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace cohort::base {
namespace {

class Log : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kWarning); }
  ~Log() override { set_log_level(LogLevel::kWarning); }
};

TEST_F(Log, LineFormMessage) {
  EXPECT_EQ(format_log_line(LogLevel::kWarning, "slow disk"), "[cohort] warning: slow disk\n");
  EXPECT_EQ(parse_log_level("DEBUG"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

TEST_F(Log, LevelDecidesWhatIsShown) {
  testing::internal::CaptureStderr();
  log_info("hidden");
  log_error("shown");
  set_log_level(LogLevel::kDebug);
  log_debug("shown too");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] error: shown\n[cohort] debug: shown too\n");
}

TEST_F(Log, WarnOnceWarnsOncePerText) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(warn_once("first text"));
  EXPECT_FALSE(warn_once("first text"));
  EXPECT_TRUE(warn_once("second text"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] warning: first text\n[cohort] warning: second text\n");
}

TEST_F(Log, WarnOnceIsOnceAmongThreads) {
  testing::internal::CaptureStderr();
  std::atomic<int> first{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { first += warn_once("from every thread") ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] warning: from every thread\n");
}

}  // namespace
}  // namespace cohort::base
