#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <vector>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/report/records/json_lines_log.h"
#include "cohort/report/records/old_logs.h"
#include "tests/support/temporary_folder.h"

namespace cohort::report {
namespace {

using test::TemporaryFolder;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string text_of(const std::string& path) { return base::read_file(path).value(); }
void write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(base::write_file_atomically(path, text).ok());
}

TEST(RunRecord, RefusesNamesThatWouldSpoilTheFile) {
  const auto error = [](const NamedNumbers& values, int64_t step = 1) {
    return check_record({.step = step, .values = values}).error().describe();
  };
  EXPECT_EQ(error({}, -1), "a step is not negative, but got -1");
  EXPECT_EQ(error({{"", 1}}), "a metric has no name");
  EXPECT_EQ(error({{"a\nb", 1}}), "the name of a metric holds a line break or another control character: \"a\\nb\"");
  EXPECT_EQ(error({{"time", 1}}), "a metric is called \"time\", which each record has already; give it another name");
  EXPECT_EQ(error({{"loss", 1}, {"lr", 1}, {"loss", 2}}), "the metric \"loss\" comes twice in one record");
}

TEST(RunRecord, RefusesNamesThatNoReaderTakes) {
  const auto error = [](const std::string& name) {
    return check_record({.step = 1, .values = {{name, 1}}}).error().describe();
  };
  EXPECT_EQ(error("caf\xe9"), "the name of a metric is not UTF-8: \"caf\xef\xbf\xbd\"");
  EXPECT_EQ(error("hyperparameters"),
            "a metric is called \"hyperparameters\", which is the name of a line of its own; give it another name");
}

TEST(JsonLinesLog, WritesHyperparametersThatItReadsAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    auto log = JsonLinesLog::open(path);
    ASSERT_TRUE(log->add_hyperparameters({{"root", std::string("/data/caf\xe9")}}, 5).ok());
    EXPECT_EQ(log->add_hyperparameters({{"lr", 0.1}, {"lr", 0.2}}, 5).error().describe(),
              "the hyper-parameter \"lr\" comes twice");
  }
  EXPECT_EQ(text_of(path), "{\"hyperparameters\": {\"root\": \"/data/caf\xef\xbf\xbd\"}, \"time\": 5.000000}\n");
  EXPECT_TRUE(JsonLinesLog::open(path, {.purge_step = 1}).ok());
}

TEST(OldLogs, AreKeptUnderOneNumber) {
  const TemporaryFolder folder;
  const std::vector<std::string> paths = {folder / "events", folder / "a.csv", folder / "a.jsonl", folder / "none.svg"};
  write(paths[1], "step,time,loss\n");
  write(paths[2], "{\"hyperparameters\": {}, \"time\": 1}\n");
  ASSERT_TRUE(make_private_folder(paths[0]).ok());
  EXPECT_EQ(keep_old_logs(paths).value(), std::vector<std::string>());  // nothing was logged
  write(paths[1], "step,time,loss\n1,1.0,0.5\n");
  write(folder / "a.1.jsonl", "another's");
  EXPECT_EQ(keep_old_logs(paths).value(), (std::vector<std::string>{"events.2", "a.2.csv", "a.2.jsonl"}));
  EXPECT_EQ(text_of(folder / "a.2.csv"), "step,time,loss\n1,1.0,0.5\n");
  EXPECT_EQ(keep_old_logs(paths).value(), std::vector<std::string>());
  write(paths[2], "{\"step\": 0, \"time\": 1, \"loss\": 2}\n");
  EXPECT_EQ(keep_old_logs(paths).value(), std::vector<std::string>{"a.3.jsonl"});
  write(paths[1], "name,age\nAnn,5\n");
  EXPECT_EQ(keep_old_logs(paths).value(), std::vector<std::string>());  // not one of ours
}

TEST(JsonLinesLog, WritesALinePerRecord) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  auto log = JsonLinesLog::open(path);
  ASSERT_TRUE(log) << log.error().describe();
  const HyperparameterList values = {{"lr", 0.1}, {"n", int64_t{3}}, {"amp", true}, {"name", std::string("a\"b")}};
  ASSERT_TRUE(log->add_hyperparameters(values, 5).ok());
  ASSERT_TRUE(log->add({.step = 1, .time = 10.25, .values = {{"loss", 0.1}, {"x", -kInfinity}}}).ok());
  EXPECT_EQ(text_of(path),
            "{\"hyperparameters\": {\"lr\": 0.1, \"n\": 3, \"amp\": true, \"name\": \"a\\\"b\"}, \"time\": 5.000000}\n"
            "{\"step\": 1, \"time\": 10.250000, \"loss\": 0.1, \"x\": \"-Infinity\"}\n");
}

TEST(JsonLinesLog, GoesOnWithoutStepsTwice) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string start = "{\"hyperparameters\": {}, \"time\": 1}\n{\"step\": 1, \"time\": 1, \"loss\": \"NaN\"}\n";
  write(path, start + "{\"step\": 2, \"time\": 2, \"loss\": 0.4}\n{\"step\": 3, \"ti");
  auto log = JsonLinesLog::open(path, {.purge_step = 2});
  ASSERT_TRUE(log) << log.error().describe();
  EXPECT_EQ(text_of(path), start);
  ASSERT_TRUE(log->add({.step = 2, .time = 5, .values = {{"loss", 0.25}}}).ok());
  EXPECT_EQ(text_of(path), start + "{\"step\": 2, \"time\": 5.000000, \"loss\": 0.25}\n");
}

TEST(JsonLinesLog, ReadsItsRecordsBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  auto log = JsonLinesLog::open(path);
  ASSERT_TRUE(log->add_hyperparameters({}, 1).ok());
  ASSERT_TRUE(log->add({.step = 7, .time = 2, .values = {{"loss", 0.1}, {"x", kInfinity}}}).ok());
  std::vector<RunRecord> records;
  ASSERT_TRUE(read_json_lines(path, [&](const RunRecord& record) { records.push_back(record); }).ok());
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].step, 7);
  EXPECT_EQ(records[0].time, 2.0);
  EXPECT_EQ(records[0].values, (NamedNumbers{{"loss", 0.1}, {"x", kInfinity}}));
}

TEST(JsonLinesLog, RefusesFilesOfOthersAndLeavesThemAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "lines.jsonl";
  const std::string expected =
      "\"" + path +
      "\", line 2: expected a record such as {\"step\": 12, \"time\": 1.7e9, \"loss\": 0.5}, but found \"";
  const std::string first = "{\"step\": 1, \"time\": 1}\n";
  for (const std::string line : {"{\"loss\": 0.5}", "{\"step\": -1}", "{\"step\": 1.5}", "{\"step\": 2, \"loss\": [1]}",
                                 "[]", "{\"step\": 2, \"step\": 3}", "", "{\"step\": 99999999999999999999}"}) {
    write(path, first + line + "\n");
    const auto log = JsonLinesLog::open(path, {.purge_step = 1});
    ASSERT_FALSE(log.ok()) << line;
    EXPECT_EQ(log.error().describe(), expected + line + "\"");
    EXPECT_EQ(text_of(path), first + line + "\n");
  }
  write(path, first + std::string(100000, '[') + "\n");
  EXPECT_EQ(JsonLinesLog::open(path).error().describe(), expected + std::string(200, '[') + "...\"");
}

TEST(JsonLinesLog, RefusesALineThatIsTooLong) {
  const TemporaryFolder folder;
  const std::string path = folder / "lines.jsonl";
  write(path, std::string(20 << 20, '7') + "\n");
  EXPECT_EQ(JsonLinesLog::open(path).error().describe(),
            "\"" + path + "\", line 1: it has more than 16777216 bytes, the limit for a record");
  write(path, std::string(20 << 20, '7'));
  EXPECT_EQ(JsonLinesLog::open(path).error().describe(),
            "\"" + path + "\" is not a file of lines: its last 16777216 bytes have no line break");
}

// A child logs as fast as it can until it is killed; whatever it has written must be whole lines that go on.
TEST(RunLogs, AKilledProgramLeavesWholeLines) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    auto lines = JsonLinesLog::open(folder / "a.jsonl");
    for (int64_t step = 1;; ++step) {
      const RunRecord record{.step = step, .time = 1, .values = {{"loss", 1.0 / static_cast<double>(step)}}};
      if (!lines->add(record).ok()) ::_exit(1);
    }
  }
  struct stat info {};
  while (::stat((folder / "a.jsonl").c_str(), &info) != 0 || info.st_size < 20000) ::usleep(1000);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  ASSERT_TRUE(JsonLinesLog::open(folder / "a.jsonl", {.purge_step = 100}).ok());
  int64_t last = 0;
  ASSERT_TRUE(
      read_json_lines(folder / "a.jsonl", [&](const RunRecord& record) { EXPECT_EQ(record.step, ++last); }).ok());
  EXPECT_EQ(last, 99);
}

}  // namespace
}  // namespace cohort::report
