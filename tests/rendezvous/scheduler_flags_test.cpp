#include "cohort/rendezvous/environment/scheduler_flags.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

// Agent 1 of `srun --nodes=2 --ntasks-per-node=1`.
const Variables kAgent = {{"SLURM_JOB_ID", "12"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NODELIST", "n[01-02]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
const Variables kBatch = {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "2"}};

// With "warning: " before a warning.
std::string text_of(Flags& flags, const Variables& variables) {
  const auto note = fill_from_scheduler(flags, variables);
  return (note.is_warning ? "warning: " : "") + note.text;
}

TEST(SchedulerFlags, OneAgentPerNodeNeedsNoFlags) {
  Flags flags;
  EXPECT_EQ(
      text_of(flags, kAgent),
      "task 1 of 2 of SLURM job 12.0, on node 1 of 2: --nnodes=2 --node-rank=1 --master-addr=n01 --master-port=12192 "
      "--rdzv-id=slurm-12.0");
  EXPECT_EQ(flags.num_nodes, "2");
  EXPECT_EQ(flags.node_rank, 1);
  EXPECT_EQ(flags.backend, "static");
  EXPECT_EQ(flags.master_address, "n01");
  EXPECT_EQ(flags.master_port, 12'192);
  EXPECT_EQ(flags.run_id, "slurm-12.0");
}

TEST(SchedulerFlags, GivenFlagsStay) {
  Flags flags{.num_nodes = "1:2", .backend = "c10d", .run_id = "mine"};
  EXPECT_EQ(text_of(flags, kAgent), "task 1 of 2 of SLURM job 12.0, on node 1 of 2: --rdzv-endpoint=n01:12192");
  EXPECT_EQ(flags.num_nodes, "1:2");
  EXPECT_FALSE(flags.node_rank);

  flags = {.node_rank = 0, .master_address = "10.0.0.1", .master_port = 5};
  EXPECT_EQ(text_of(flags, kAgent), "task 1 of 2 of SLURM job 12.0, on node 1 of 2: --nnodes=2 --rdzv-id=slurm-12.0");
  EXPECT_EQ(flags.node_rank, 0);
  EXPECT_EQ(flags.master_address, "10.0.0.1");
  EXPECT_EQ(flags.master_port, 5);

  flags = {.backend = "etcd-v2", .endpoint = "store:2379"};
  EXPECT_EQ(text_of(flags, kAgent), "task 1 of 2 of SLURM job 12.0, on node 1 of 2: --nnodes=2 --rdzv-id=slurm-12.0");
  EXPECT_EQ(flags.endpoint, "store:2379");
}

TEST(SchedulerFlags, MasterVariablesNameTheMeetingPoint) {
  auto variables = kAgent;
  variables["MASTER_ADDR"] = "10.1.1.1";
  variables["MASTER_PORT"] = "4711";
  Flags flags;
  fill_from_scheduler(flags, variables);
  EXPECT_EQ(flags.master_address, "10.1.1.1");
  EXPECT_EQ(flags.master_port, 4711);
  flags = {.backend = "c10d"};
  fill_from_scheduler(flags, variables);
  EXPECT_EQ(flags.endpoint, "10.1.1.1:4711");
}

TEST(SchedulerFlags, NothingForOneTaskOrAUserWhoSaysSo) {
  auto alone = kAgent;
  alone["SLURM_STEP_NUM_TASKS"] = "1";
  alone["SLURM_PROCID"] = "0";
  for (const auto& [flags, variables] : std::vector<std::pair<Flags, Variables>>{{{}, {}},
                                                                                 {{}, alone},
                                                                                 {{.standalone = true}, kAgent},
                                                                                 {{.num_nodes = "1"}, kAgent},
                                                                                 {{.num_nodes = "2"}, kBatch}}) {
    Flags changed = flags;
    EXPECT_EQ(text_of(changed, variables), "");
    EXPECT_EQ(changed.num_nodes, flags.num_nodes);
    EXPECT_EQ(changed.run_id, "none");
    EXPECT_FALSE(changed.node_rank || changed.master_port);
  }
}

TEST(SchedulerFlags, SeveralAgentsOnAHostMeetOnIt) {
  Flags flags;
  EXPECT_EQ(text_of(flags, {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "7"}}),
            "rank 3 of 4 of OpenMPI's mpirun: --nnodes=4 --node-rank=3 --master-port=" +
                std::to_string(port_of_job("openmpi-7")) + " --rdzv-id=openmpi-7");
  EXPECT_EQ(flags.master_address, "127.0.0.1");
}

TEST(SchedulerFlags, AloneMessages) {
  Flags flags;
  EXPECT_EQ(text_of(flags, kBatch),
            "warning: SLURM job 12 has 2 nodes, but only this one takes part: start one agent per node with srun "
            "--ntasks-per-node=1 cohort run ...");
  EXPECT_EQ(text_of(flags, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            "warning: rank 0 of 2 of OpenMPI's mpirun, but this agent runs alone: OpenMPI does not say on which host "
            "rank 0 is: "
            "mpirun -x MASTER_ADDR=<host of rank 0>");
  EXPECT_EQ(flags.num_nodes, "1:1");
}

TEST(SchedulerFlags, KubernetesGivesTheNodeRank) {
  Flags flags{.num_nodes = "2"};
  const Variables pod = {{"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "train-0.train"}, {"MASTER_PORT", "29400"}};
  EXPECT_EQ(text_of(flags, pod),
            "pod 1 of a Kubernetes indexed job: --node-rank=1 --master-addr=train-0.train --master-port=29400");
  Flags alone;
  EXPECT_EQ(text_of(alone, pod), "");
}

}  // namespace
}  // namespace cohort::rendezvous
