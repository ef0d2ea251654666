#include "cohort/rendezvous/environment/scheduler_environment.h"

#include <gtest/gtest.h>

#include <set>

namespace cohort::rendezvous {
namespace {

// As SLURM 22.05 sets them for `srun --nodes=2 --ntasks=3`, task 2.
const Variables kSlurmTask = {{"SLURM_JOB_ID", "12"},
                              {"SLURM_STEP_ID", "3"},
                              {"SLURM_PROCID", "2"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_NTASKS", "3"},
                              {"SLURM_STEP_NUM_TASKS", "3"},
                              {"SLURM_STEP_NUM_NODES", "2"},
                              {"SLURM_JOB_NUM_NODES", "2"},
                              {"SLURM_GTIDS", "2"},
                              {"SLURM_JOB_NODELIST", "n[01-02]"},
                              {"SLURM_STEP_NODELIST", "n[01-02]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "2,1"}};
// In the batch script of `sbatch --nodes=2 --ntasks=4`.
const Variables kSlurmBatch = {{"SLURM_JOB_ID", "12"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_NTASKS", "4"},
                               {"SLURM_JOB_NUM_NODES", "2"},
                               {"SLURM_TASKS_PER_NODE", "2(x2)"},
                               {"SLURM_GTIDS", "0"},
                               {"SLURM_JOB_NODELIST", "n[01-02]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "732495873"},     {"PMIX_RANK", "1"}};
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    if (value == "unset")
      base.erase(name);
    else
      base[name] = value;
  }
  return base;
}

TEST(SchedulerEnvironment, NothingWithoutAScheduler) {
  EXPECT_FALSE(read_scheduler({}));
  EXPECT_FALSE(read_scheduler({{"PATH", "/bin"}, {"SLURM_CONF", "/etc/slurm.conf"}, {"PMI_RANK", "0"}}));
  EXPECT_FALSE(read_scheduler({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}));
}

TEST(SchedulerEnvironment, SlurmTask) {
  const auto found = read_scheduler(kSlurmTask);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "SLURM");
  EXPECT_EQ(found->found, "task 2 of 3 of SLURM job 12.3, on node 1 of 2");
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->world_size, 3);
  EXPECT_EQ(found->local_rank, 0);
  EXPECT_EQ(found->local_world_size, 1);
  EXPECT_EQ(found->node_rank, 1);
  EXPECT_EQ(found->num_nodes, 2);
  EXPECT_EQ(found->first_host, "n01");
  EXPECT_EQ(found->job_id, "slurm-12.3");
  EXPECT_EQ(found->port, 12'000 + 12 * 16 + 3);
  EXPECT_EQ(found->gap, "");
  EXPECT_FALSE(found->num_cores);
  EXPECT_EQ(read_scheduler(with(kSlurmTask, {{"SLURM_CPUS_PER_TASK", "4"}}))->num_cores, 4);
}

TEST(SchedulerEnvironment, SlurmTaskOfAStepOnOneNode) {
  const auto found = read_scheduler(with(kSlurmTask, {{"SLURM_STEP_NUM_NODES", "1"},
                                                      {"SLURM_STEP_NODELIST", "n02"},
                                                      {"SLURM_NODEID", "0"},
                                                      {"SLURM_GTIDS", "0,1,2"},
                                                      {"SLURM_LOCALID", "2"},
                                                      {"SLURM_STEP_TASKS_PER_NODE", "3"}}));
  EXPECT_EQ(found->first_host, "127.0.0.1");
  EXPECT_EQ(found->local_rank, 2);
  EXPECT_EQ(found->local_world_size, 3);
}

TEST(SchedulerEnvironment, SlurmBatchScriptIsNoTask) {
  const auto found = read_scheduler(kSlurmBatch);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->rank || found->world_size || found->local_rank || found->node_rank || found->port);
  EXPECT_EQ(found->num_nodes, 2);
  EXPECT_EQ(found->found, "SLURM job 12");
  EXPECT_EQ(found->gap,
            "this process is in SLURM job 12, but is not one of its tasks (a batch script or a shell): start the "
            "program with "
            "srun");
}

// sbatch hands on the environment of whoever calls it, here a task.
TEST(SchedulerEnvironment, SlurmBatchScriptSubmittedByATaskIsNoTask) {
  const Variables leaked = {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "n[01-02]"}, {"SLURM_STEP_NUM_NODES", "2"}};
  for (const auto& [tasks, per_node] : Variables{{"2", "1(x2)"}, {"4", "2(x2)"}}) {
    const auto found = read_scheduler(
        with(with(kSlurmBatch, leaked), {{"SLURM_STEP_NUM_TASKS", tasks}, {"SLURM_STEP_TASKS_PER_NODE", per_node}}));
    EXPECT_FALSE(found->rank) << tasks;
  }
}

TEST(SchedulerEnvironment, SlurmInteractiveStepIsNoTask) {
  EXPECT_FALSE(read_scheduler(with(kSlurmTask, {{"SLURM_STEP_ID", "4294967290"}}))->rank);
  EXPECT_FALSE(read_scheduler(with(kSlurmTask, {{"SLURM_STEP_ID", "unset"}}))->rank);
  EXPECT_FALSE(read_scheduler(with(kSlurmTask, {{"SLURM_PROCID", "unset"}}))->rank);
}

TEST(SchedulerEnvironment, SlurmGapMessages) {
  EXPECT_EQ(read_scheduler(with(kSlurmTask, {{"SLURM_DISTRIBUTION", "arbitrary"}}))->gap,
            "with SLURM_DISTRIBUTION=arbitrary rank 0 may be on any node: set MASTER_ADDR to its host");
  const auto found = read_scheduler(with(kSlurmTask, {{"SLURM_STEP_NODELIST", "n[01-"}}));
  EXPECT_EQ(found->first_host, "");
  EXPECT_EQ(
      found->gap,
      "SLURM_STEP_NODELIST: \"n[01-\" is not a list of hosts: its brackets do not match; set MASTER_ADDR to rank 0's "
      "host");
}

TEST(SchedulerEnvironment, OpenMpiOnOneHost) {
  const auto found = read_scheduler(kOpenMpi);
  EXPECT_EQ(found->name, "OpenMPI");
  EXPECT_EQ(found->found, "rank 1 of 2 of OpenMPI's mpirun");
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->world_size, 2);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world_size, 2);
  EXPECT_EQ(found->num_nodes, 1);
  EXPECT_EQ(found->first_host, "127.0.0.1");
  EXPECT_EQ(found->job_id, "openmpi-732495873");
  EXPECT_EQ(found->port, port_of_job("openmpi-732495873"));
  EXPECT_EQ(found->gap, "");
}

TEST(SchedulerEnvironment, MpiOnSeveralHostsDoesNotNameRankZeros) {
  auto found = read_scheduler(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_EQ(found->first_host, "");
  EXPECT_EQ(found->gap, "OpenMPI does not say on which host rank 0 is: mpirun -x MASTER_ADDR=<host of rank 0>");
  found = read_scheduler(with(kMpich, {{"PMI_SIZE", "4"}}));
  EXPECT_EQ(found->gap, "MPICH does not say on which host rank 0 is: mpirun -genv MASTER_ADDR <host of rank 0>");
}

// mpirun in a SLURM job starts its daemons by srun: SLURM's task is the daemon, the rank is MPI's.
TEST(SchedulerEnvironment, MpirunInSlurmIsMpi) {
  const auto daemon = with(kSlurmTask, {{"SLURM_NTASKS", "2"},
                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                        {"SLURM_PROCID", "1"},
                                        {"SLURM_GTIDS", "1"},
                                        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});
  auto found =
      read_scheduler(with(daemon, with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}})));
  EXPECT_EQ(found->name, "OpenMPI");
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->world_size, 4);
  EXPECT_EQ(found->first_host, "n01");
  EXPECT_FALSE(found->node_rank);
  found = read_scheduler(with(daemon, with(kMpich, {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}})));
  EXPECT_EQ(found->name, "MPICH");
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->first_host, "n01");
  EXPECT_EQ(found->port, port_of_job("slurm-12"));
}

TEST(SchedulerEnvironment, SrunWithPmi2IsSlurm) {
  const auto found = read_scheduler(with(kSlurmTask, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_JOBID", "12.3"}}));
  EXPECT_EQ(found->name, "SLURM");
  EXPECT_EQ(found->node_rank, 1);
}

TEST(SchedulerEnvironment, MpichOnOneHost) {
  const auto found = read_scheduler(kMpich);
  EXPECT_EQ(found->name, "MPICH");
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->local_world_size, 2);
  EXPECT_EQ(found->first_host, "127.0.0.1");
  EXPECT_FALSE(found->port);
  EXPECT_EQ(found->job_id, "");
}

TEST(SchedulerEnvironment, KubernetesAndPmixTellTheRankAlone) {
  auto found = read_scheduler({{"JOB_COMPLETION_INDEX", "2"}});
  EXPECT_EQ(found->found, "pod 2 of a Kubernetes indexed job");
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->node_rank, 2);
  EXPECT_FALSE(found->world_size);
  EXPECT_EQ(
      found->gap,
      "JOB_COMPLETION_INDEX gives this pod's rank; give WORLD_SIZE, MASTER_ADDR (pod 0's name in a headless service) "
      "and MASTER_PORT in the pod's env");
  found = read_scheduler({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-vm-1@1"}});
  EXPECT_EQ(found->found, "rank 1 of PMIx job prterun-vm-1@1");
  EXPECT_FALSE(found->world_size);
  EXPECT_EQ(found->gap,
            "PMIx tells the number of ranks only to MPI programs: set WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

TEST(SchedulerEnvironment, PortsOfNeighboringJobsAndStepsDiffer) {
  std::set<int> ports;
  for (int job = 1'000'000; job < 1'001'000; ++job) {
    for (int step = 0; step < 16; ++step) {
      ports.insert(port_of_job("slurm-" + std::to_string(job) + "." + std::to_string(step)));
    }
  }
  EXPECT_EQ(ports.size(), 16'000u);
  EXPECT_GE(*ports.begin(), 12'000);
  EXPECT_LT(*ports.rbegin(), 32'000);
}

TEST(SchedulerEnvironment, PortsOfOtherJobsAreSpread) {
  std::set<int> ports;
  for (int pid = 1; pid <= 1'000; ++pid) ports.insert(port_of_job("hydra-" + std::to_string(pid)));
  EXPECT_GT(ports.size(), 950u);
  EXPECT_GE(*ports.begin(), 12'000);
  EXPECT_LT(*ports.rbegin(), 32'000);
}

}  // namespace
}  // namespace cohort::rendezvous
