#include "cohort/elastic/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

using Variables = std::map<std::string, std::string>;

WorkerContext context_of_two_nodes() {
  return {.layout = {.num_nodes = 2,
                     .node_rank = 1,
                     .local_world_size = 4,
                     .world_size = 8,
                     .first_rank = 4,
                     .first_role_rank = 4,
                     .role_world_size = 8},
          .role = "trainer",
          .run_id = "run-7",
          .job = "job-7",
          .store_address = "node-a",
          .store_port = 29501,
          .restart_count = 1,
          .max_restarts = 3};
}

TEST(WorkerEnvironment, SnapshotsAreThisLaunchersAndTheLocalRankTheRealOne) {
  WorkerContext context = context_of_two_nodes();
  context.vault = "name";
  context.virtual_local_rank = true;
  const Variables inherited = {{"COHORT_SNAPSHOTS", "another:0"}};
  const WorkerShare share{.local_rank = 2, .error_file = "", .num_threads = 0, .visible_gpus = ""};
  EXPECT_EQ(worker_environment(context, share, inherited)["COHORT_SNAPSHOTS"], "name:2");
  context.vault = "";
  EXPECT_FALSE(worker_environment(context, share, inherited).contains("COHORT_SNAPSHOTS"));
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
                              {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                              {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                              {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(worker_environment(
                context_of_two_nodes(),
                {.local_rank = 2, .error_file = "/logs/2/error.json", .num_threads = 3, .visible_gpus = ""}, {}),
            expected);
}

TEST(WorkerEnvironment, InheritsTheRestButItsOwnRanks) {
  const Variables inherited = {{"HOME", "/home/me"}, {"RANK", "77"}, {"CUDA_VISIBLE_DEVICES", "1"}};
  const Variables variables = worker_environment(context_of_two_nodes(), {}, inherited);
  EXPECT_EQ(variables.at("HOME"), "/home/me");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(variables.at("RANK"), "4");
  EXPECT_EQ(variables.count("OMP_NUM_THREADS"), 0u);
}

TEST(WorkerEnvironment, NamesTheAgentThatAProcessDescendsFrom) {
  WorkerContext context = context_of_two_nodes();
  context.agent_mark = "4711-ab";
  EXPECT_EQ(worker_environment(context, {}, {{"COHORT_AGENT", "1-cd"}}).at("COHORT_AGENT"), "4711-ab");
}

TEST(WorkerEnvironment, UsersThreadsAndNcclSettingStay) {
  const Variables inherited = {{"OMP_NUM_THREADS", "9"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}};
  const Variables variables =
      worker_environment(context_of_two_nodes(), {.error_file = "", .num_threads = 2, .visible_gpus = ""}, inherited);
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "9");
  EXPECT_EQ(variables.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

TEST(WorkerEnvironment, VirtualLocalRankSeesOneGpu) {
  WorkerContext context = context_of_two_nodes();
  context.virtual_local_rank = true;
  const Variables variables = worker_environment(context, {.local_rank = 3, .error_file = "", .visible_gpus = "5"},
                                                 {{"CUDA_VISIBLE_DEVICES", "2,3,4,5"}});
  EXPECT_EQ(variables.at("LOCAL_RANK"), "0");
  EXPECT_EQ(variables.at("RANK"), "7");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "5");
}

TEST(WorkerEnvironment, AgentsSecretStaysTheirs) {
  EXPECT_EQ(worker_environment(context_of_two_nodes(), {}, {{"COHORT_TOKEN", "secret"}}).count("COHORT_TOKEN"), 0u);
}

TEST(WorkerEnvironment, WorkerZeroMayHostTheStore) {
  WorkerContext context = context_of_two_nodes();
  context.agent_hosts_store = false;
  EXPECT_EQ(worker_environment(context, {}, {}).at("TORCHELASTIC_USE_AGENT_STORE"), "False");
}

}  // namespace
}  // namespace cohort::elastic
