#include "cohort/elastic/plan/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

using Variables = std::map<std::string, std::string>;

/// A plan of four workers per node.
LaunchPlan plan_of_four() {
  LaunchPlan plan;
  plan.rendezvous.run_id = "run-7";
  plan.num_threads = {0, 0, 3, 2};
  plan.gpus = {"", "", "", "5"};
  plan.variables = {{"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"}, {"LD_PRELOAD", "allocator.so"}};
  return plan;
}

rendezvous::Round round_of_two_nodes() {
  const rendezvous::Node node{.host = "a", .address = "10.0.0.1", .local_world_size = 4, .role = "trainer"};
  return {.job = "job-7",
          .restart_count = 1,
          .max_restarts = 3,
          .node_rank = 1,
          .nodes = {node, node},
          .store_address = "node-a",
          .store_port = 29501};
}

Variables variables_of(int local_rank, const Variables& inherited = {}, const LaunchPlan& plan = plan_of_four(),
                       const AttemptFiles& files = {}) {
  return worker_environment(plan, round_of_two_nodes(), files, local_rank, inherited);
}

TEST(WorkerEnvironment, SnapshotsAreThisLaunchersAndTheLocalRankTheRealOne) {
  LaunchPlan plan = plan_of_four();
  plan.virtual_local_rank = true;
  const Variables inherited = {{"COHORT_SNAPSHOTS", "another:0"}};
  EXPECT_EQ(variables_of(2, inherited, plan, {.snapshot_server = "name"})["COHORT_SNAPSHOTS"], "name:2");
  EXPECT_FALSE(variables_of(2, inherited, plan).contains("COHORT_SNAPSHOTS"));
}

TEST(WorkerEnvironment, IsTorchrunsContract) {
  const Variables expected = {{"RANK", "6"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "2"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"GROUP_RANK", "1"},
                              {"GROUP_WORLD_SIZE", "2"},
                              {"ROLE_RANK", "6"},
                              {"ROLE_WORLD_SIZE", "8"},
                              {"ROLE_NAME", "trainer"},
                              {"MASTER_ADDR", "node-a"},
                              {"MASTER_PORT", "29501"},
                              {"TORCHELASTIC_RESTART_COUNT", "1"},
                              {"TORCHELASTIC_MAX_RESTARTS", "3"},
                              {"TORCHELASTIC_RUN_ID", "run-7"},
                              {"COHORT_JOB", "job-7"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"TORCHELASTIC_ERROR_FILE", "/logs/2/error.json"},
                              {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
                              {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                              {"LD_PRELOAD", "allocator.so"},
                              {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(variables_of(2, {}, plan_of_four(), {.folder = "/logs"}), expected);
}

TEST(WorkerEnvironment, InheritsTheRestButItsOwnRanks) {
  const Variables inherited = {
      {"HOME", "/home/me"}, {"RANK", "77"}, {"CUDA_VISIBLE_DEVICES", "1"}, {"LD_PRELOAD", "other.so"}};
  const Variables variables = variables_of(0, inherited);
  EXPECT_EQ(variables.at("HOME"), "/home/me");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(variables.at("RANK"), "4");
  EXPECT_EQ(variables.at("LD_PRELOAD"), "allocator.so");
  EXPECT_EQ(variables.at("TORCHELASTIC_ERROR_FILE"), "");
  EXPECT_EQ(variables.count("OMP_NUM_THREADS"), 0u);
}

TEST(WorkerEnvironment, NamesTheAgentThatAProcessDescendsFrom) {
  EXPECT_EQ(variables_of(0, {{"COHORT_AGENT", "1-cd"}}, plan_of_four(), {.mark = "4711-ab"}).at("COHORT_AGENT"),
            "4711-ab");
}

TEST(WorkerEnvironment, UsersThreadsAndNcclSettingStay) {
  const Variables variables = variables_of(3, {{"OMP_NUM_THREADS", "9"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}});
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "9");
  EXPECT_EQ(variables.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

TEST(WorkerEnvironment, VirtualLocalRankSeesOneGpu) {
  LaunchPlan plan = plan_of_four();
  plan.virtual_local_rank = true;
  const Variables variables = variables_of(3, {{"CUDA_VISIBLE_DEVICES", "2,3,4,5"}}, plan);
  EXPECT_EQ(variables.at("LOCAL_RANK"), "0");
  EXPECT_EQ(variables.at("RANK"), "7");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "5");
}

TEST(WorkerEnvironment, AgentsSecretStaysTheirs) {
  EXPECT_EQ(variables_of(0, {{"COHORT_TOKEN", "secret"}}).count("COHORT_TOKEN"), 0u);
}

TEST(WorkerEnvironment, WorkerZeroMayHostTheStore) {
  rendezvous::Round round = round_of_two_nodes();
  round.agent_hosts_store = false;
  EXPECT_EQ(worker_environment(plan_of_four(), round, {}, 0, {}).at("TORCHELASTIC_USE_AGENT_STORE"), "False");
}

}  // namespace
}  // namespace cohort::elastic
