#include "cohort/elastic/output/log_routing.h"
#include "cohort/base/file/atomic_file.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

constexpr StreamChoice kNone = {};
constexpr StreamChoice kOut = {.output = true};
constexpr StreamChoice kBoth = {.output = true, .errors = true};

TEST(LogRouting, ChoiceForAllOrPerRank) {
  EXPECT_EQ(*parse_stream_choices("--tee", "3", 2), (std::vector<StreamChoice>{kBoth, kBoth}));
  EXPECT_EQ(*parse_stream_choices("--tee", "0:1,2:3", 3), (std::vector<StreamChoice>{kOut, kNone, kBoth}));
  EXPECT_EQ(*parse_stream_choices("--tee", "11:1", 12).value().rbegin(), kOut);
}

TEST(LogRouting, ChoiceMessage) {
  for (const char* bad : {"4", "", "0:4", "x:1", "0:1,", "0:"}) {
    EXPECT_EQ(parse_stream_choices("--tee", bad, 2).error().describe(),
              std::string("--tee=") + bad +
                  " is neither 0, 1, 2 or 3 nor a list such as 0:1,1:3\n"
                  "  hint: use 0 for none, 1 for stdout, 2 for stderr, 3 for both; LOCAL_RANK:NUMBER is for one rank");
  }
}

TEST(LogRouting, RanksFilter) {
  EXPECT_EQ(*parse_local_ranks_filter(""), std::nullopt);
  EXPECT_EQ(**parse_local_ranks_filter("2, 0"), (std::set<int>{0, 2}));
  EXPECT_EQ(parse_local_ranks_filter("0,a").error().describe(),
            "--local-ranks-filter=0,a must be a comma-separated list of integers e.g. 0,1,2");
}

TEST(LogRouting, FilesTeeAndFilter) {
  const LogOptions options = {.redirects = {kNone, kOut, kBoth}, .tee = {kBoth, kNone, kOut}, .shown_ranks = {{0, 1}}};
  const std::vector<WorkerRoutes> routes = plan_worker_routes(options, "/logs");
  EXPECT_EQ(routes[0].output.file, "/logs/0/stdout.log");
  EXPECT_TRUE(routes[0].errors.tee);
  EXPECT_EQ(routes[1].output.file, "/logs/1/stdout.log");
  EXPECT_FALSE(routes[1].output.tee);
  EXPECT_EQ(routes[1].errors.file, "");
  EXPECT_FALSE(routes[1].errors.silent);
  EXPECT_EQ(routes[2].output.file, "/logs/2/stdout.log");
  EXPECT_FALSE(routes[2].output.tee);
  EXPECT_TRUE(routes[2].errors.silent);
  EXPECT_EQ(routes[2].error_file, "/logs/2/error.json");
}

TEST(LogRouting, NoFolderMeansNoFiles) {
  const std::vector<WorkerRoutes> routes = plan_worker_routes({.redirects = {kBoth}, .tee = {kBoth}}, "");
  EXPECT_EQ(routes[0].output.file, "");
  EXPECT_FALSE(routes[0].output.tee);
  EXPECT_EQ(routes[0].error_file, "");
}

TEST(LogRouting, CreatesTorchrunsTree) {
  const test::TemporaryFolder root;
  const LogFolder folder = create_log_folder(root / "logs", "run").value();
  EXPECT_TRUE(folder.path.starts_with(root / "logs/run_"));
  EXPECT_EQ(folder.temporary_root, "");
  EXPECT_EQ(create_attempt_folder(folder, 1, 2).value(), folder.path + "/attempt_1");
  EXPECT_TRUE(std::filesystem::is_directory(folder.path + "/attempt_1/1"));
}

TEST(LogRouting, NullFolderIsNone) {
  const LogFolder none = create_log_folder("/dev/null", "run").value();
  EXPECT_EQ(none.path, "");
  EXPECT_EQ(create_attempt_folder(none, 0, 2).value(), "");
}

TEST(LogRouting, RunIdIsNoPath) {
  const test::TemporaryFolder root;
  const LogFolder folder = create_log_folder(root / "logs", "../../elsewhere/x").value();
  EXPECT_TRUE(folder.path.starts_with(root / "logs/.._.._elsewhere_x_")) << folder.path;
}

TEST(LogRouting, TemporaryFolderGoesUnlessUsed) {
  const LogFolder unused = create_log_folder("", "run").value();
  ASSERT_TRUE(std::filesystem::is_directory(create_attempt_folder(unused, 0, 1).value()));
  remove_if_unused(unused);
  EXPECT_FALSE(std::filesystem::exists(unused.temporary_root));
  const LogFolder used = create_log_folder("", "run").value();
  const std::string attempt = create_attempt_folder(used, 0, 1).value();
  ASSERT_TRUE(base::write_file_atomically(attempt + "/0/error.json", "{}"));
  remove_if_unused(used);
  EXPECT_TRUE(std::filesystem::exists(attempt + "/0/error.json"));
  std::filesystem::remove_all(used.temporary_root);
}

TEST(LogRouting, FiltersAreTextsBetweenCommas) {
  EXPECT_EQ(parse_filters("apple,orange"), (std::vector<std::string>{"apple", "orange"}));
  EXPECT_EQ(parse_filters("a,,b,c"), (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(parse_filters(""), std::vector<std::string>());
}

}  // namespace
}  // namespace cohort::elastic
