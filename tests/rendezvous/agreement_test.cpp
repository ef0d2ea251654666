#include "cohort/rendezvous/rounds/agreement.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

Settings settings(const std::string& num_nodes, const std::string& conf, int max_restarts = 0) {
  Flags flags;
  flags.backend = "c10d";
  flags.num_nodes = num_nodes;
  flags.conf = conf;
  return parse_settings(flags, {.max_restarts = max_restarts}).value();
}

base::Result<std::vector<std::string>> compare(const Settings& own, const Settings& first) {
  return compare_settings(settings_text(own, "node1"), settings_text(first, "node0"));
}

TEST(Agreement, EqualSettingsAgree) {
  const auto warnings = compare(settings("2", ""), settings("2:2", "join_timeout=3"));
  ASSERT_TRUE(warnings);
  EXPECT_TRUE(warnings->empty());
}

TEST(Agreement, DifferentNumbersOfNodesMessage) {
  EXPECT_EQ(compare(settings("2:4", ""), settings("3", "")).error().describe(),
            "--nnodes is 2:4 here, but 3 on node0\n  hint: start every node of a job with the same settings");
}

TEST(Agreement, DifferentKeepAliveMessage) {
  EXPECT_EQ(compare(settings("2", "keep_alive_interval=1"), settings("2", "")).error().message(),
            "--rdzv-conf keep_alive_interval x keep_alive_max_attempt is 1.0 s x 3 here, but 5.0 s x 3 on node0");
}

TEST(Agreement, DifferentRestartsAreAWarning) {
  const auto warnings = compare(settings("2", "", 3), settings("2", "", 1));
  ASSERT_TRUE(warnings);
  EXPECT_EQ(*warnings, std::vector<std::string>{"--max-restarts is 3 here, but 1 on node0; node 0's value is used"});
}

TEST(Agreement, AnotherProtocolMessage) {
  auto first = settings_text(settings("2", ""), "node0");
  const auto at = first.find(R"("protocol":"1")");
  ASSERT_NE(at, std::string::npos);
  first.replace(at, 14, R"("protocol":"2")");
  EXPECT_EQ(compare_settings(settings_text(settings("2", ""), "node1"), first).error().message(),
            "the rendezvous protocol of Cohort is 1 here, but 2 on node0");
}

TEST(Agreement, RubbishMessage) {
  EXPECT_EQ(compare_settings(settings_text(settings("2", ""), "node1"), "rubbish").error().message(),
            "the rendezvous' store has settings that cannot be read: rubbish");
}

}  // namespace
}  // namespace cohort::rendezvous
