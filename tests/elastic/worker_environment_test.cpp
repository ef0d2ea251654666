#include "cohort/elastic/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

using Variables = std::map<std::string, std::string>;

Job job_of_two_nodes() {
  return {.layout = {.num_nodes = 2, .node_rank = 1, .local_world_size = 4},
          .role = "trainer",
          .run_id = "run-7",
          .master_address = "node-a",
          .master_port = 29500};
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
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"},
                              {"TORCHELASTIC_MAX_RESTARTS", "0"},
                              {"TORCHELASTIC_RUN_ID", "run-7"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                              {"TORCHELASTIC_ERROR_FILE", "/logs/2/error.json"},
                              {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                              {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                              {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(worker_environment(job_of_two_nodes(), 2, "/logs/2/error.json", 3, {}), expected);
}

TEST(WorkerEnvironment, InheritsTheRestButItsOwnRanks) {
  const Variables inherited = {{"HOME", "/home/me"}, {"RANK", "77"}, {"CUDA_VISIBLE_DEVICES", "1"}};
  const Variables variables = worker_environment(job_of_two_nodes(), 0, "", 0, inherited);
  EXPECT_EQ(variables.at("HOME"), "/home/me");
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(variables.at("RANK"), "4");
  EXPECT_EQ(variables.count("OMP_NUM_THREADS"), 0u);
}

TEST(WorkerEnvironment, UsersThreadsAndNcclSettingStay) {
  const Variables inherited = {{"OMP_NUM_THREADS", "9"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}};
  const Variables variables = worker_environment(job_of_two_nodes(), 0, "", 2, inherited);
  EXPECT_EQ(variables.at("OMP_NUM_THREADS"), "9");
  EXPECT_EQ(variables.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

}  // namespace
}  // namespace cohort::elastic
