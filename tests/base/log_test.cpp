#include "cohort/base/log/log.h"

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

/// A text that this process has not warned about, even when tests are repeated.
std::string fresh_text() {
  static int count = 0;
  return "text " + std::to_string(++count);
}

TEST_F(Log, WarnOnceWarnsOncePerText) {
  const std::string first = fresh_text();
  const std::string second = fresh_text();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(warn_once(first));
  EXPECT_FALSE(warn_once(first));
  EXPECT_TRUE(warn_once(second));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: " + first + "\n[cohort] warning: " + second + "\n");
}

TEST_F(Log, WarnOnceIsOnceAmongThreads) {
  const std::string text = fresh_text();
  testing::internal::CaptureStderr();
  std::atomic<int> first{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { first += warn_once(text) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] warning: " + text + "\n");
}

}  // namespace
}  // namespace cohort::base
