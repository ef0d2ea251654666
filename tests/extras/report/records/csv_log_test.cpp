#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/extras/report/records/csv_log.h"
#include "tests/support/temporary_folder.h"

namespace cohort::report {
namespace {

using test::TemporaryFolder;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string text_of(const std::string& path) { return base::read_file(path).value(); }
void write(const std::string& path, const std::string& text) {
  ASSERT_TRUE(base::write_file_atomically(path, text).ok());
}

TEST(CsvLog, WritesRowsAndAddsColumns) {
  const TemporaryFolder folder;
  const std::string path = folder / "run/metrics.csv";
  auto log = CsvLog::open(path);
  ASSERT_TRUE(log) << log.error().describe();
  ASSERT_TRUE(log->add({.step = 1, .time = 10.25, .values = {{"loss", 0.5}}}).ok());
  ASSERT_TRUE(log->add({.step = 2, .time = 11, .values = {{"a,\"b\"", 1e-300}, {"loss", kInfinity}}}).ok());
  ASSERT_TRUE(log->add({.step = 3, .time = 12, .values = {}}).ok());
  EXPECT_EQ(text_of(path),
            "step,time,loss,\"a,\"\"b\"\"\"\n"
            "1,10.250000,0.5,\n"
            "2,11.000000,inf,1e-300\n"
            "3,12.000000,,\n");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST(CsvLog, GoesOnWithoutStepsTwice) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.csv";
  write(path, "step,time,loss\n1,1.0,0.5\n2,2.0,0.4\n3,3.0,0.3\n4,4.0,0.");
  auto log = CsvLog::open(path, {.purge_step = 3});
  ASSERT_TRUE(log) << log.error().describe();
  ASSERT_TRUE(log->add({.step = 3, .time = 5, .values = {{"loss", 0.25}}}).ok());
  EXPECT_EQ(text_of(path), "step,time,loss\n1,1.0,0.5\n2,2.0,0.4\n3,5.000000,0.25\n");
}

TEST(CsvLog, CutsOffALineThatWasNotWrittenToItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.csv";
  write(path, "step,time,loss\n1,1.0,0.5\n2,2.0,0.");
  ASSERT_TRUE(CsvLog::open(path).ok());
  EXPECT_EQ(text_of(path), "step,time,loss\n1,1.0,0.5\n");
  write(path, "step,ti");
  ASSERT_TRUE(CsvLog::open(path).ok());
  EXPECT_EQ(text_of(path), "step,time\n");
}

TEST(CsvLog, CutsOffALongLineInPieces) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.csv";
  write(path, "step,time,loss\n1,1.0,0.5\n" + std::string(3 << 20, '7'));
  ASSERT_TRUE(CsvLog::open(path).ok());
  EXPECT_EQ(text_of(path), "step,time,loss\n1,1.0,0.5\n");
}

TEST(CsvLog, RefusesFilesOfOthersAndLeavesThemAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "table.csv";
  write(path, "name,age\nAnn,5\n");
  const auto log = CsvLog::open(path, {.purge_step = 1});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().describe(), "\"" + path +
                                        "\" is not a log of a run: its columns do not begin with \"step,time\"\n"
                                        "  hint: name another file, or set overwrite");
  EXPECT_EQ(text_of(path), "name,age\nAnn,5\n");
  write(path, "step,time,loss\n1,1.0,0.5\ntwo,2.0,0.5\n");
  EXPECT_EQ(CsvLog::open(path).error().describe(),
            "\"" + path + "\", line 3: expected a step and 2 more fields, but found \"two,2.0,0.5\"");
  write(path, "step,time,loss\n1,1.0\n");
  EXPECT_EQ(CsvLog::open(path).error().describe(),
            "\"" + path + "\", line 2: expected a step and 2 more fields, but found \"1,1.0\"");
  write(path, "step,time,\"a\nb\"\n");
  EXPECT_EQ(CsvLog::open(path).error().describe(),
            "\"" + path +
                "\" is not a log of a run\n  caused by: the name of a metric holds a line break or another control "
                "character: \"a\\nb\"");
  ASSERT_TRUE(CsvLog::open(path, {.overwrite = true}).ok());
  EXPECT_EQ(text_of(path), "step,time\n");
}

TEST(CsvLog, RefusesWhatIsNoPlainFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(CsvLog::open(folder / "pipe").error().describe(),
            "cannot open \"" + (folder / "pipe") + "\": No such device or address (ENXIO)");
  EXPECT_EQ(CsvLog::open(folder.path()).error().describe(),
            "cannot open \"" + folder.path() + "\": Is a directory (EISDIR)");
}

// A child logs as fast as it can until it is killed; whatever it has written must be whole lines that go on.
TEST(CsvLog, AKilledProgramLeavesWholeLines) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.csv";
  const pid_t child = ::fork();
  if (child == 0) {
    auto log = CsvLog::open(path);
    for (int64_t step = 1; log->add({.step = step, .time = 1, .values = {{"loss", 0.5}}}).ok(); ++step) continue;
    ::_exit(1);
  }
  struct stat info {};
  while (::stat(path.c_str(), &info) != 0 || info.st_size < 20000) ::usleep(1000);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  ASSERT_TRUE(CsvLog::open(path, {.purge_step = 100}).ok());
  const std::string text = text_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);  // with that of the names
}

}  // namespace
}  // namespace cohort::report
