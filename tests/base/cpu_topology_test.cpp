#include "cohort/base/machine/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "tests/support/temporary_folder.h"

namespace cohort::base {
namespace {

void put(const std::string& path, const std::string& text) {
  ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))));
  ASSERT_TRUE(write_file_atomically(path, text));
}

TEST(CpuTopology, ListsOfCpus) {
  EXPECT_EQ(parse_cpu_list("0-3,8").value(), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5,1-2,2").value(), (std::vector<int>{1, 2, 5}));
  EXPECT_EQ(parse_cpu_list("").value(), std::vector<int>());
}

TEST(CpuTopology, BadListMessage) {
  for (const char* text : {"x", "1-", "3-1", "-1", "1-2-3", "0-99999999"}) {
    EXPECT_EQ(parse_cpu_list(text).error().describe(),
              "\"" + std::string(text) + "\" is not a list of CPUs such as 0-3,8");
  }
}

TEST(CpuTopology, ReadsWhatTheKernelShows) {
  const test::TemporaryFolder root;
  const std::string folder = root / "system";
  put(folder + "/node/node1/cpulist", "2-3\n");
  put(folder + "/node/node0/cpulist", "0-1\n");
  put(folder + "/cpu/cpu3/topology/thread_siblings_list", "2-3\n");
  put(folder + "/cpu/cpu3/topology/physical_package_id", "1\n");
  put(folder + "/cpu/cpu3/cache/index0/level", "1\n");
  put(folder + "/cpu/cpu3/cache/index0/shared_cpu_list", "3\n");
  put(folder + "/cpu/cpu3/cache/index3/level", "3\n");
  put(folder + "/cpu/cpu3/cache/index3/shared_cpu_list", "0-3\n");
  EXPECT_THAT(read_cpus({0, 3}, folder),
              testing::ElementsAre(Cpu{.id = 0}, Cpu{.id = 3, .core = 2, .cache = 0, .numa_node = 1, .socket = 1}));
}

TEST(CpuTopology, GpusInTheOrderOfTheirAddresses) {
  const test::TemporaryFolder root;
  put(root / "gpus/0000:81:00.0/information", "");
  put(root / "gpus/0000:01:00.0/information", "");
  put(root / "pci/0000:81:00.0/numa_node", "1\n");
  EXPECT_EQ(gpu_numa_nodes(root / "gpus", root / "pci"), (std::vector<int>{-1, 1}));
  EXPECT_EQ(gpu_numa_nodes(root / "none", root / "pci"), std::vector<int>());
}

TEST(CpuTopology, ThisProcessMayUseACpu) {
  EXPECT_FALSE(allowed_cpus().empty());
  EXPECT_EQ(read_cpus(allowed_cpus()).size(), allowed_cpus().size());
}

}  // namespace
}  // namespace cohort::base
