#include "cohort/elastic/report/failure_report.h"
#include "cohort/base/file/atomic_file.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

constexpr std::time_t kTime = 1767268800;  // 2026-01-01 12:00:00 UTC

class FailureReport : public testing::Test {
 protected:
  FailureReport() : zone_(base::get_env("TZ")) {
    base::set_env("TZ", "UTC");
    ::tzset();
  }
  ~FailureReport() override {
    if (zone_) {
      base::set_env("TZ", *zone_);
    } else {
      base::unset_env("TZ");
    }
    ::tzset();
  }

 private:
  std::optional<std::string> zone_;
};

TEST_F(FailureReport, TwoFailuresMessage) {
  const std::vector<WorkerFailure> failures = {
      describe_failure(1, 1, 102, {.code = 3}, "", kTime),
      describe_failure(0, 0, 101, {.signal = SIGTERM}, "", kTime + 1),
  };
  EXPECT_EQ(format_failure_report("train.py", failures, "node-a"),
            "============================================================\n"
            "train.py FAILED\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "[1]:\n"
            "  time      : 2026-01-01_12:00:01\n"
            "  host      : node-a\n"
            "  rank      : 0 (local_rank: 0)\n"
            "  exitcode  : -15 (pid: 101)  (SIGTERM)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 15 (SIGTERM) received by PID 101\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2026-01-01_12:00:00\n"
            "  host      : node-a\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : 3 (pid: 102) \n"
            "  error_file: <N/A>\n"
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
            "============================================================");
}

TEST_F(FailureReport, FirstStaysFirstAndTheOthersGoByRank) {
  std::vector<WorkerFailure> failures;
  for (const int rank : {2, 3, 0, 1})
    failures.push_back(describe_failure(rank, rank, 100 + rank, {.code = 1}, "", kTime));
  const auto report = format_failure_report("train.py", failures, "h");
  std::vector<std::string> lines;
  for (const auto& line : base::split(report, '\n')) {
    if (line.starts_with("[") || line.starts_with("  rank ")) lines.push_back(line);
  }
  EXPECT_EQ(
      base::join(lines, " "),
      "[1]:   rank      : 0 (local_rank: 0) [2]:   rank      : 1 (local_rank: 1) [3]:   rank      : 3 (local_rank: 3) "
      "[0]:   rank      : 2 (local_rank: 2)");
}

TEST_F(FailureReport, SingleFailureAsNarrowAsItsTextMessage) {
  const std::vector<WorkerFailure> failures = {describe_failure(0, 0, 7, {.signal = SIGKILL}, "", kTime)};
  EXPECT_EQ(format_failure_report("./a", failures, "h"),
            "==================================================\n"
            "./a FAILED\n"
            "--------------------------------------------------\n"
            "Failures:\n"
            "  <NO_OTHER_FAILURES>\n"
            "--------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2026-01-01_12:00:00\n"
            "  host      : h\n"
            "  rank      : 0 (local_rank: 0)\n"
            "  exitcode  : -9 (pid: 7)  (SIGKILL)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 9 (SIGKILL) received by PID 7\n"
            "==================================================");
}

TEST_F(FailureReport, ErrorFileOfRecordGivesTracebackAndTime) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "error.json";
  ASSERT_TRUE(base::write_file_atomically(path, R"({"message": {"message": "ValueError: bad", "extraInfo":
            {"py_callstack": "Traceback:\n  line\nValueError: bad\n", "timestamp": "1767268795"}}})"));
  const WorkerFailure failure = describe_failure(2, 0, 9, {.code = 1}, path, kTime);
  EXPECT_EQ(failure.time, 1767268795);
  EXPECT_EQ(failure.error_file, path);
  EXPECT_EQ(failure.message, "Traceback:\n    line\n  ValueError: bad\n  ");
}

TEST_F(FailureReport, ErrorFileWithPlainMessage) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "error.json";
  ASSERT_TRUE(base::write_file_atomically(path, R"({"message": "out of memory", "timestamp": 5})"));
  const WorkerFailure failure = describe_failure(0, 0, 9, {.code = 1}, path, kTime);
  EXPECT_EQ(failure.message, "out of memory");
  EXPECT_EQ(failure.time, 5);
}

TEST_F(FailureReport, DamagedErrorFileIsSaidAndNotFatal) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "error.json";
  for (const char* text : {"", "{\"message\": {\"mess", "[1]", "{\"message\": 7}", "{}"}) {
    ASSERT_TRUE(base::write_file_atomically(path, text));
    const WorkerFailure failure = describe_failure(0, 0, 9, {.code = 1}, path, kTime);
    EXPECT_EQ(failure.message, "the error file has no message; see its text") << text;
    EXPECT_EQ(failure.time, kTime);
  }
}

TEST_F(FailureReport, DeepErrorFilesNeedNoDeepStack) {
  const test::TemporaryFolder folder;
  const size_t depth = 1'000'000;
  const std::string text =
      R"({"message": {"message": "x", "extraInfo": )" + std::string(depth, '[') + std::string(depth, ']') + "}}";
  ASSERT_TRUE(base::write_file_atomically(folder / "error.json", text));
  const WorkerFailure failure = describe_failure(0, 0, 1, {.code = 3}, folder / "error.json", kTime);
  EXPECT_EQ(failure.message, "the error file has no message; see its text");
  EXPECT_EQ(error_file_with_code(text, {.code = 3}), text);
}

TEST_F(FailureReport, PassedOnErrorFileHasTheExitCode) {
  EXPECT_EQ(error_file_with_code(R"({"message":{"message":"bad"}})", {.signal = SIGSEGV}),
            R"({"message":{"errorCode":-11,"message":"bad"}})");
  EXPECT_EQ(error_file_with_code(R"({"message": "plain"})", {.code = 1}), R"({"message": "plain"})");
  EXPECT_EQ(error_file_with_code("no json", {.code = 1}), "no json");
}

TEST_F(FailureReport, EarliestTimeIsTheRootCause) {
  std::vector<WorkerFailure> failures = {
      describe_failure(0, 0, 1, {.code = 1}, "", kTime),
      describe_failure(1, 1, 2, {.code = 1}, "", kTime - 2),
      describe_failure(2, 2, 3, {.code = 1}, "", kTime - 2),
  };
  EXPECT_EQ(root_cause(failures).rank, 1);
}

}  // namespace
}  // namespace cohort::elastic
