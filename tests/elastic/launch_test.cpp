#include "cohort/elastic/agent/launch.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

HostFacts host() {
  HostFacts facts{.devices = {.num_cores = 8, .num_gpus = 0}, .cpus = {}, .gpu_nodes = {}};
  for (int id = 0; id < 8; ++id) facts.cpus.push_back({.id = id, .core = id, .cache = id / 4 * 4, .numa_node = id / 4});
  return facts;
}

LaunchFlags flags_of(const std::string& local_world_size) {
  LaunchFlags flags;
  flags.local_world_size = local_world_size;
  return flags;
}

std::string error_of(const LaunchFlags& flags) { return plan_launch(flags, host()).error().describe(); }

TEST(LaunchPlan, CoresAreSharedByWorkers) {
  EXPECT_EQ(plan_launch(flags_of("2"), host())->num_threads, (std::vector<int>{4, 4}));
  EXPECT_EQ(plan_launch(flags_of("3"), host())->num_threads, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(plan_launch(flags_of("20"), host())->num_threads, std::vector<int>(20, 1));
  EXPECT_EQ(plan_launch(flags_of("1"), host())->num_threads, std::vector<int>{0});
}

TEST(LaunchPlan, SaysHowManyThreadsAndWhy) {
  EXPECT_EQ(plan_launch(flags_of("1"), host())->threads_note, "");
  EXPECT_EQ(plan_launch(flags_of("3"), host())->threads_note,
            "OMP_NUM_THREADS is not set; setting it to 2 for each worker (8 cores / 3 workers)");
  LaunchFlags flags = flags_of("3");
  flags.cpu_bind = "cores";
  EXPECT_EQ(plan_launch(flags, host())->threads_note,
            "OMP_NUM_THREADS is not set; setting it to 2 to 3 for each worker (the CPUs it is bound to)");
}

TEST(LaunchPlan, WorkersHearOfTheSignalsAsTheyWereTyped) {
  LaunchFlags flags = flags_of("1");
  flags.signals_to_handle = "SIGTERM,SIGUSR1";
  const LaunchPlan plan = plan_launch(flags, host()).value();
  EXPECT_EQ(plan.variables,
            (std::map<std::string, std::string>{{"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"}}));
  EXPECT_EQ(plan.signals, (std::vector<int>{SIGTERM, SIGUSR1}));
}

TEST(LaunchPlan, UsersThreadsStay) {
  HostFacts facts = host();
  facts.num_threads = "5";
  EXPECT_EQ(plan_launch(flags_of("2"), facts)->threads_note, "");
  EXPECT_EQ(plan_launch(flags_of("2"), facts)->num_threads, (std::vector<int>{0, 0}));
}

TEST(LaunchPlan, ThreadsAreThoseOfTheCpusBoundTo) {
  LaunchFlags flags = flags_of("3");
  flags.cpu_bind = "cores";
  const LaunchPlan plan = plan_launch(flags, host()).value();
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
  EXPECT_EQ(plan.num_threads, (std::vector<int>{2, 3, 3}));
}

// Two sockets of two nodes of two caches of two cores each; two workers have their GPUs on node 1, one on node 2.
TEST(LaunchPlan, NumaBindingIsThatOfTheGpus) {
  HostFacts facts = host();
  facts.cpus.clear();
  for (int id = 0; id < 16; ++id) {
    facts.cpus.push_back({.id = id, .core = id, .cache = id / 2 * 2, .numa_node = id / 4, .socket = id / 8});
  }
  facts.gpu_nodes = {1, 1, 2};
  LaunchFlags flags = flags_of("3");
  const auto cpus_of = [&](const char* binding) {
    flags.numa_binding = binding;
    return plan_launch(flags, facts)->cpus;
  };
  using Lists = std::vector<std::vector<int>>;
  const std::vector<int> first = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(cpus_of("node"), (Lists{{4, 5, 6, 7}, {4, 5, 6, 7}, {8, 9, 10, 11}}));
  EXPECT_EQ(cpus_of("socket"), (Lists{first, first, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(cpus_of("exclusive"), (Lists{{4, 5}, {6, 7}, {8, 9, 10, 11}}));
  EXPECT_EQ(cpus_of("core-complex"), (Lists{{4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(cpus_of(""), (Lists{{}, {}, {}}));
}

TEST(LaunchPlan, VirtualLocalRankGivesEachItsGpu) {
  LaunchFlags flags = flags_of("2");
  flags.plan.virtual_local_rank = true;
  EXPECT_EQ(plan_launch(flags, host())->gpus, (std::vector<std::string>{"0", "1"}));
  HostFacts facts = host();
  facts.visible_gpus = "4, 6";
  EXPECT_EQ(plan_launch(flags, facts)->gpus, (std::vector<std::string>{"4", "6"}));
  flags.gpus = "1,2";
  EXPECT_EQ(plan_launch(flags, facts)->gpus, (std::vector<std::string>{"1", "2"}));
}

TEST(LaunchPlan, GpuListIsForAllWorkers) {
  LaunchFlags flags = flags_of("2");
  EXPECT_EQ(plan_launch(flags, host())->gpus, (std::vector<std::string>{"", ""}));
  flags.gpus = "0,2";
  EXPECT_EQ(plan_launch(flags, host())->gpus, (std::vector<std::string>{"0,2", "0,2"}));
}

TEST(LaunchPlan, ErrorsMessage) {
  LaunchFlags flags = flags_of("2");
  flags.signals_to_handle = "SIGSTOP";
  EXPECT_EQ(error_of(flags), "--signals-to-handle: no process can handle SIGSTOP");
  flags = flags_of("2");
  flags.event_log_handler = "consol";
  EXPECT_EQ(error_of(flags), "--event-log-handler=consol is neither null nor console (did you mean \"console\"?)");
  flags = flags_of("2");
  flags.plan.virtual_local_rank = true;
  flags.gpus = "3";
  EXPECT_EQ(error_of(flags),
            "local_rank 1 exceeds available GPUs in CUDA_VISIBLE_DEVICES=3\n"
            "  hint: start fewer workers: --virtual-local-rank gives each one its own GPU");
}

}  // namespace
}  // namespace cohort::elastic
