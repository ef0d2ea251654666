#include "cohort/elastic/launch.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

constexpr HostDevices kHost = {.num_cores = 8, .num_gpus = 0};

std::string error_of(const LaunchOptions& options) { return plan_launch(options, kHost).error().describe(); }

TEST(LaunchPlan, OneNodePicksItsPort) {
  const LaunchPlan plan = plan_launch({.local_world_size = "2", .master_address = "ignored"}, kHost).value();
  EXPECT_TRUE(plan.picks_port);
  EXPECT_EQ(plan.job.master_address, "127.0.0.1");
  EXPECT_EQ(plan.threads_per_rank, 4);
}

TEST(LaunchPlan, GivenPortIsStatic) {
  const LaunchPlan plan = plan_launch({.master_address = "node-a", .master_port = 1234}, kHost).value();
  EXPECT_FALSE(plan.picks_port);
  EXPECT_EQ(plan.job.master_address, "node-a");
  EXPECT_EQ(plan.job.master_port, 1234);
  EXPECT_EQ(plan.job.run_id, "none");
  EXPECT_EQ(plan.threads_per_rank, 0);
}

TEST(LaunchPlan, StandaloneWinsOverAPort) {
  EXPECT_TRUE(plan_launch({.standalone = true, .master_port = 1234}, kHost)->picks_port);
}

TEST(LaunchPlan, SeveralNodesMeetAtPort29500) {
  const LaunchPlan plan = plan_launch({.num_nodes = "2", .node_rank = 1, .master_address = "node-a"}, kHost).value();
  EXPECT_FALSE(plan.picks_port);
  EXPECT_EQ(plan.job.master_port, 29500);
  EXPECT_EQ(plan.job.layout.rank(0), 1);
}

TEST(LaunchPlan, MoreRanksThanCoresGetOneThread) {
  EXPECT_EQ(plan_launch({.local_world_size = "20"}, kHost)->threads_per_rank, 1);
}

TEST(LaunchPlan, ErrorsMessage) {
  EXPECT_EQ(error_of({.num_nodes = "2", .standalone = true}), "--standalone is for one node, got --nnodes=2");
  EXPECT_EQ(error_of({.num_nodes = "2", .node_rank = 2}), "--node-rank=2 must be from 0 to 1 for --nnodes=2");
  EXPECT_EQ(error_of({.master_port = 70000}), "--master-port=70000 must be from 1 to 65535");
  EXPECT_EQ(error_of({.signals_to_handle = "SIGSTOP"}), "--signals-to-handle: no process can handle SIGSTOP");
}

}  // namespace
}  // namespace cohort::elastic
