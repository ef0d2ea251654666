#include "cohort/comm/start/rendezvous_url.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>

#include "cohort/base/system/env.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::comm {
namespace {

// The variables of env:// and of schedulers, set for one test and restored after it.
class RendezvousUrl : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      saved_[name] = base::get_env(name);
      base::unset_env(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      if (value)
        base::set_env(name.c_str(), *value);
      else
        base::unset_env(name.c_str());
    }
  }
  void set_all() {
    base::set_env("RANK", "1");
    base::set_env("WORLD_SIZE", "4");
    base::set_env("MASTER_ADDR", "node-a");
    base::set_env("MASTER_PORT", "29500");
  }

  static constexpr const char* kNames[] = {
      "RANK",          "WORLD_SIZE",   "MASTER_ADDR",          "MASTER_PORT",          "TORCHELASTIC_USE_AGENT_STORE",
      "USE_LIBUV",     "LOCAL_RANK",   "SLURM_JOB_ID",         "SLURM_STEP_ID",        "SLURM_PROCID",
      "SLURM_NODEID",  "SLURM_NTASKS", "SLURM_GTIDS",          "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
      "SLURM_LOCALID", "PMI_RANK",     "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NODELIST",  "SLURM_STEP_TASKS_PER_NODE"};
  std::map<std::string, std::optional<std::string>> saved_;
};

std::string message_of(const std::string& url, int rank = -1, int world_size = -1) {
  try {
    plan_rendezvous(url, rank, world_size);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

TEST_F(RendezvousUrl, EnvReadsTheFourVariables) {
  set_all();
  const auto plan = plan_rendezvous("env://", -1, -1);
  EXPECT_EQ(plan.rank, 1);
  EXPECT_EQ(plan.world_size, 4);
  EXPECT_EQ(plan.host, "node-a");
  EXPECT_EQ(plan.port, 29500);
  EXPECT_TRUE(plan.use_libuv);
  EXPECT_FALSE(plan.hosts_store);
}

// As PyTorch: the URL goes before the variable, and nothing but 1 means libuv.
TEST_F(RendezvousUrl, VariableOrUrlChoosesTheStoresServer) {
  set_all();
  for (const auto& [variable, url, expected] :
       std::vector<std::tuple<const char*, const char*, bool>>{{"1", "env://", true},
                                                               {"0", "env://", false},
                                                               {"true", "env://", false},
                                                               {"0", "env://?use_libuv=1", true},
                                                               {"1", "env://?use_libuv=0", false},
                                                               {"0", "tcp://node-a:29500", false}}) {
    base::set_env("USE_LIBUV", variable);
    EXPECT_EQ(plan_rendezvous(url, 1, 4).use_libuv, expected) << "USE_LIBUV=" << variable << ", " << url;
  }
}

TEST_F(RendezvousUrl, ExplicitRankAndWorldSizeWinOverTheEnvironment) {
  set_all();
  const auto plan = plan_rendezvous("env://", 0, 2);
  EXPECT_EQ(plan.rank, 0);
  EXPECT_EQ(plan.world_size, 2);
  EXPECT_TRUE(plan.hosts_store);
}

TEST_F(RendezvousUrl, RankZeroIsAClientOfAnAgentsStore) {
  set_all();
  base::set_env("RANK", "0");
  base::set_env("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_FALSE(plan_rendezvous("env://", -1, -1).hosts_store);
}

TEST_F(RendezvousUrl, MissingVariableMessage) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    set_all();
    base::unset_env(name);
    EXPECT_EQ(
        message_of("env://"),
        std::string("Error initializing torch.distributed using env:// rendezvous: environment "
                    "variable ") +
            name +
            " expected, but not set\n  hint: start this program by a launcher, as in `cohort run --nproc-per-node 2 " +
            program_invocation_name + "`, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  }
}

TEST_F(RendezvousUrl, MalformedVariableMessage) {
  set_all();
  base::set_env("WORLD_SIZE", "two");
  EXPECT_EQ(message_of("env://"),
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            "WORLD_SIZE must be an integer, got \"two\"");
  set_all();
  base::set_env("MASTER_PORT", "99999");
  EXPECT_EQ(message_of("env://"), "port must have value from 0 to 65535 but was 99999.");
  set_all();
  base::set_env("RANK", "4");
  EXPECT_EQ(
      message_of("env://"),
      "Error initializing torch.distributed using env:// rendezvous: rank must be from 0 to 3 (world_size=4), got 4");
}

// Task 3 of 4 on the second of two nodes.
void set_slurm_task() {
  for (const auto& [name, value] : std::map<const char*, const char*>{{"SLURM_JOB_ID", "12"},
                                                                      {"SLURM_STEP_ID", "0"},
                                                                      {"SLURM_PROCID", "3"},
                                                                      {"SLURM_LOCALID", "1"},
                                                                      {"SLURM_NODEID", "1"},
                                                                      {"SLURM_STEP_NUM_TASKS", "4"},
                                                                      {"SLURM_STEP_NUM_NODES", "2"},
                                                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                                      {"SLURM_STEP_NODELIST", "node[08-09]"}}) {
    base::set_env(name, value);
  }
}

TEST_F(RendezvousUrl, SchedulerFillsWhatIsNotSet) {
  set_slurm_task();
  auto plan = plan_rendezvous("env://", -1, -1);
  EXPECT_EQ(plan.rank, 3);
  EXPECT_EQ(plan.world_size, 4);
  EXPECT_EQ(plan.host, "node08");
  EXPECT_EQ(plan.port, 12'192);
  EXPECT_EQ(plan.source, "MASTER_ADDR and MASTER_PORT (filled in from SLURM where unset)");
  EXPECT_EQ(get_node_local_rank(), 1);
  base::set_env("MASTER_PORT", "29500");
  base::set_env("RANK", "");
  plan = plan_rendezvous("env://", -1, 4);
  EXPECT_EQ(plan.rank, 3);
  EXPECT_EQ(plan.host, "node08");
  EXPECT_EQ(plan.port, 29'500);
  base::set_env("MASTER_ADDR", "10.0.0.1");
  EXPECT_EQ(plan_rendezvous("env://", -1, -1).source, "MASTER_ADDR and MASTER_PORT");
}

TEST_F(RendezvousUrl, SetVariablesWinOverTheScheduler) {
  set_slurm_task();
  set_all();
  const auto plan = plan_rendezvous("env://", -1, -1);
  EXPECT_EQ(plan.rank, 1);
  EXPECT_EQ(plan.host, "node-a");
  EXPECT_EQ(plan.port, 29'500);
  EXPECT_EQ(get_node_local_rank(7), 7);  // SLURM's is that of its task 3
}

TEST_F(RendezvousUrl, SchedulerIsNotAskedForAnotherPlaceThanItsOwnMessage) {
  set_slurm_task();
  base::set_env("RANK", "0");
  EXPECT_EQ(
      message_of("env://"),
      "Error initializing torch.distributed using env:// rendezvous: environment variable WORLD_SIZE expected, but not "
      "set\n  hint: this process is task 3 of 4 of SLURM job 12.0, on node 1 of 2, but RANK or WORLD_SIZE say "
      "something "
      "else; unset them, or set all four: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  base::unset_env("RANK");
  EXPECT_EQ(message_of("env://", 0, 2),
            "Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, "
            "but not "
            "set\n  hint: this process is task 3 of 4 of SLURM job 12.0, on node 1 of 2, but RANK or WORLD_SIZE say "
            "something "
            "else; unset them, or set all four: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

TEST_F(RendezvousUrl, BatchScriptIsNoRankMessage) {
  base::set_env("SLURM_JOB_ID", "12");
  base::set_env("SLURM_PROCID", "0");
  base::set_env("SLURM_NTASKS", "4");
  EXPECT_EQ(
      message_of("env://"),
      "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set\n"
      "  hint: this process is in SLURM job 12, but is not one of its tasks (a batch script or a shell): start the "
      "program "
      "with srun");
}

TEST_F(RendezvousUrl, TcpTakesHostPortAndQuery) {
  const auto plan = plan_rendezvous("tcp://10.0.0.1:23456?rank=0&world_size=3&use_libuv=0", -1, -1);
  EXPECT_EQ(plan.host, "10.0.0.1");
  EXPECT_EQ(plan.port, 23456);
  EXPECT_EQ(plan.rank, 0);
  EXPECT_EQ(plan.world_size, 3);
  EXPECT_FALSE(plan.use_libuv);
  EXPECT_TRUE(plan.hosts_store);
  EXPECT_EQ(plan_rendezvous("tcp://[::1]:23456", 0, 1).host, "::1");
}

TEST_F(RendezvousUrl, TcpMessages) {
  EXPECT_EQ(message_of("tcp://node-a", 0, 1),
            "Error initializing torch.distributed using tcp:// rendezvous: port number missing");
  EXPECT_EQ(message_of("tcp://:123", 0, 1),
            "Error initializing torch.distributed using tcp:// rendezvous: host name missing");
  EXPECT_EQ(message_of("tcp://node-a:65536", 0, 1), "port must have value from 0 to 65535 but was 65536.");
  EXPECT_EQ(message_of("tcp://node-a:1"),
            "Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing");
  EXPECT_EQ(message_of("tcp://node-a:1", 0),
            "Error initializing torch.distributed using tcp:// rendezvous: world size parameter missing");
  EXPECT_EQ(message_of("tcp://node-a:1?rank=0", 0, 1),
            "The url: tcp://node-a has node-specific arguments(rank, world_size) already.");
}

TEST_F(RendezvousUrl, FileTakesAPath) {
  const auto plan = plan_rendezvous("file:///shared/store?rank=1&world_size=2", -1, -1);
  EXPECT_EQ(plan.kind, RendezvousPlan::Kind::kFile);
  EXPECT_EQ(plan.path, "/shared/store");
  EXPECT_EQ(message_of("file://", 0, 1), "Error initializing torch.distributed using file:// rendezvous: path missing");
}

TEST_F(RendezvousUrl, UnknownSchemeMessage) {
  EXPECT_EQ(message_of("etcd://a:1", 0, 1), "No rendezvous handler for etcd:// (known: env://, tcp://, file://)");
  EXPECT_EQ(message_of("node-a", 0, 1),
            "[cohort] init_method \"node-a\" is not a URL; use env://, tcp://host:port or file:///path");
}

}  // namespace
}  // namespace cohort::comm
