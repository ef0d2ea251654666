#include "cohort/pipeline/csv.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "cohort/base/file/file.h"
#include "cohort/pipeline/schedules.h"
#include "tests/support/temporary_folder.h"

namespace cohort::pipeline {
namespace {

std::string read_again(const std::string& text) {
  const auto order = parse_csv("plan.csv", text);
  return order ? csv_text(*order) : order.error().describe();
}

TEST(PipelineCsv, IsReadAsPythonReadsIt) {
  EXPECT_EQ(read_again("0F0,,0B0\n1F0, 1B0\r\n"), "0F0,,0B0\r\n1F0,1B0\r\n");
  EXPECT_EQ(read_again("\"0F0\",\"\"\n"), "0F0,\r\n");
  EXPECT_EQ(read_again("\"\"\r\n"), "\"\"\r\n");
  EXPECT_EQ(parse_csv("plan.csv", "\"\"\r\n")->front().size(), 1u);
  EXPECT_EQ(parse_csv("plan.csv", "\r\n0F0")->size(), 2u) << "an empty line is a rank without actions";
  EXPECT_EQ(parse_csv("plan.csv", "\r\n")->front().size(), 0u);
  EXPECT_EQ(parse_csv("plan.csv", "")->size(), 0u);
}

TEST(PipelineCsv, ErrorsSayWhere) {
  EXPECT_EQ(read_again("0F0\n0F1,2X0\n"),
            "\"plan.csv\", line 2, column 5: Invalid action string: 2X0, should be formatted as [stage][action "
            "type][(microbatch)] e.g. 2F0: \"X\" is not an action type");
  EXPECT_EQ(read_again("0F0,\"0F1"), "\"plan.csv\", line 1, column 5: its quote is not closed");
  EXPECT_EQ(read_again("\"0F1\"x"), "\"plan.csv\", line 1, column 6: expected a comma behind a quote");
  EXPECT_EQ(read_again(std::string(1025, '\n')),
            "\"plan.csv\", line 1025, column 1: a pipeline has at most 1024 ranks");
  EXPECT_EQ(read_again(std::string((1 << 20) + 5, ',')),
            "\"plan.csv\", line 1, column 1048577: a list has at most 1048576 actions");
  EXPECT_EQ(read_again(std::string((32 << 20) + 1, ' ')), "\"plan.csv\" is too large for a list of actions: 32.0 MiB");
}

TEST(PipelineCsv, FilesAreTheirOwnersAlone) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "plan.csv";
  const auto order = plan_schedule(ScheduleKind::kDualPipeV, {2, 4, 4});
  ASSERT_TRUE(save_csv(path, *order));
  EXPECT_EQ(*load_csv(path), *order);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(load_csv((folder / "none.csv")).error().describe(),
            "cannot open \"" + folder.path() + "/none.csv\": No such file or directory (ENOENT)");
}

}  // namespace
}  // namespace cohort::pipeline
