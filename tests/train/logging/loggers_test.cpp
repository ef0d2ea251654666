#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cohort/base/file/file.h"
#include "cohort/train/logging/folder_loggers.h"
#include "cohort/train/logging/json_lines_logger.h"
#include "cohort/train/logging/system_metrics.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort::train {
namespace {

using test::error_of;
using test::TemporaryFolder;

std::string contents(const std::string& path) { return base::read_file(path).value(); }

TEST(JsonLines, AResumedRunGoesOn) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  JsonLinesLogger(path).log_metrics(1, {{"loss", 0.5}});
  JsonLinesLogger(path).log_metrics(2, {{"loss", 0.4}});
  JsonLinesLogger resumed(path, {.purge_step = 2});
  resumed.log_metrics(2, {{"loss", 0.3}});
  resumed.flush();
  const std::string text = contents(path);
  EXPECT_NE(text.find("\"loss\": 0.5}"), std::string::npos);
  EXPECT_EQ(text.find("\"loss\": 0.4}"), std::string::npos);
  EXPECT_NE(text.find("\"loss\": 0.3}"), std::string::npos);
}

TEST(JsonLines, ARunThatBeginsKeepsWhatAnotherHasLogged) {
  const TemporaryFolder folder;
  JsonLinesLogger(folder / "metrics.jsonl", {.purge_step = 1}).log_metrics(1, {{"loss", 0.5}});
  testing::internal::CaptureStderr();
  JsonLinesLogger(folder / "metrics.jsonl", {.purge_step = 1}).log_metrics(1, {});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: JsonLinesLogger: the run begins at its first step; the logs of an earlier run in \"" +
                (folder / "") + "\" are kept as metrics.1.jsonl\n");
}

TEST(JsonLines, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  JsonLinesLogger log(folder / "metrics.jsonl");
  EXPECT_EQ(error_of([&] { log.log_metrics(-1, {}); }), "[cohort] JsonLinesLogger: a step is not negative, but got -1");
  log.close();
  EXPECT_EQ(error_of([&] { log.log_metrics(1, {}); }),
            "[cohort] JsonLinesLogger: it is closed, so nothing can be logged");
  EXPECT_EQ(error_of([&] { JsonLinesLogger other(folder.path()); }),
            "[cohort] JsonLinesLogger: cannot open \"" + folder.path() + "\": Is a directory (EISDIR)");
}

TEST(FolderLoggers, AreJsonLinesWithoutTheExtras) {
  const TemporaryFolder folder;
  const auto logger = detail::folder_loggers(folder / "run", 1, /*plot=*/false);
  logger->log_metrics(1, {{"loss", 0.5}});
  logger->close();
  EXPECT_NE(contents(folder / "run/metrics.jsonl").find("\"loss\": 0.5}"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.csv"));
  EXPECT_EQ(
      error_of([&] { detail::folder_loggers(folder / "run", 1, /*plot=*/true); }),
      "[cohort] Trainer: plot = true needs Cohort's extras; link the program with cohort::extras, or leave it out");
}

TEST(LoggerList, OneThatFailsDoesNotKeepTheOthersFromClosing) {
  struct Failing : Logger {
    explicit Failing(std::string name) : name_(std::move(name)) {}
    void log_metrics(int64_t, const Metrics&) override {}
    void flush() override { TORCH_CHECK(false, name_, " flush"); }
    void close() override { TORCH_CHECK(false, name_, " close"); }
    std::string name_;
  };
  struct Counting : Logger {
    void log_metrics(int64_t, const Metrics&) override {}
    void flush() override { ++num_calls; }
    void close() override { ++num_calls; }
    int num_calls = 0;
  };
  LoggerList loggers;
  loggers.add(std::make_shared<Failing>("first"));
  loggers.add(std::make_shared<Failing>("second"));
  const auto last = std::make_shared<Counting>();
  loggers.add(last);
  EXPECT_EQ(error_of([&] { loggers.flush(); }), "first flush");
  EXPECT_EQ(error_of([&] { loggers.close(); }), "first close");
  EXPECT_EQ(last->num_calls, 2);
}

TEST(SystemMetrics, AreMetricsForALogger) {
  SystemMetrics system({.pss = false, .gpu = false});
  const Metrics metrics = system.sample();
  ASSERT_FALSE(metrics.empty());
  for (const auto& [name, value] : metrics) {
    EXPECT_TRUE(name.starts_with("system/")) << name;
    EXPECT_NE(name, "system/pss_gib");
  }
}

}  // namespace
}  // namespace cohort::train
