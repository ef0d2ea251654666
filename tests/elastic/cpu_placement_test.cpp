#include "cohort/elastic/plan/cpu_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

using base::Cpu;
using Lists = std::vector<std::vector<int>>;

/// Two sockets of one node each, four cores a node in two caches, two threads a core: CPUs 0-7 and, their siblings, 8-15.
std::vector<Cpu> two_nodes() {
  std::vector<Cpu> cpus;
  for (int id = 0; id < 16; ++id) {
    const int core = id % 8;
    cpus.push_back({.id = id, .core = core, .cache = core / 2 * 2, .numa_node = core / 4, .socket = core / 4});
  }
  return cpus;
}

Lists place(CpuBinding binding, int num_workers, const std::vector<int>& gpu_nodes = {}) {
  return place_workers(binding, num_workers, two_nodes(), gpu_nodes);
}

TEST(CpuPlacement, NoneBindsNobody) { EXPECT_EQ(place(CpuBinding::kNone, 2), (Lists{{}, {}})); }

TEST(CpuPlacement, CoresAreSharedEquallyWithTheirThreads) {
  EXPECT_EQ(place(CpuBinding::kCores, 2), (Lists{{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}}));
  EXPECT_EQ(place(CpuBinding::kCores, 3)[1], (std::vector<int>{2, 3, 4, 10, 11, 12}));
}

TEST(CpuPlacement, MoreWorkersThanCoresShareThem) {
  const Lists placed = place(CpuBinding::kCores, 16);
  EXPECT_EQ(placed[0], (std::vector<int>{0, 8}));
  EXPECT_EQ(placed[1], placed[0]);
  EXPECT_EQ(placed[15], (std::vector<int>{7, 15}));
}

TEST(CpuPlacement, NodesAreDealtInBlocks) {
  const Lists placed = place(CpuBinding::kNode, 4);
  EXPECT_EQ(placed[1], (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(placed[2], (std::vector<int>{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(CpuPlacement, NodeIsThatOfTheGpu) {
  EXPECT_EQ(place(CpuBinding::kNode, 2, {1, 0}), (Lists{{4, 5, 6, 7, 12, 13, 14, 15}, {0, 1, 2, 3, 8, 9, 10, 11}}));
  EXPECT_EQ(place(CpuBinding::kNode, 2, {-1, -1})[0], (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11}));
}

TEST(CpuPlacement, ExclusiveSharesTheNodesCores) {
  EXPECT_EQ(place(CpuBinding::kExclusive, 4), (Lists{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(place(CpuBinding::kExclusive, 2, {1, 1}), (Lists{{4, 5, 12, 13}, {6, 7, 14, 15}}));
}

TEST(CpuPlacement, SocketAndCoreComplex) {
  EXPECT_EQ(place(CpuBinding::kSocket, 2)[1], (std::vector<int>{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(place(CpuBinding::kCoreComplex, 3), (Lists{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}}));
}

TEST(CpuPlacement, WordsMessage) {
  EXPECT_EQ(parse_cpu_binding("cores", "").value(), CpuBinding::kCores);
  EXPECT_EQ(parse_cpu_binding("numa", "").value(), CpuBinding::kNode);
  EXPECT_EQ(parse_cpu_binding("none", "").value(), CpuBinding::kNone);
  EXPECT_EQ(parse_cpu_binding("none", "node").value(), CpuBinding::kNode);
  EXPECT_EQ(parse_cpu_binding("none", "socket").value(), CpuBinding::kSocket);
  EXPECT_EQ(parse_cpu_binding("none", "exclusive").value(), CpuBinding::kExclusive);
  EXPECT_EQ(parse_cpu_binding("none", "core-complex").value(), CpuBinding::kCoreComplex);
  EXPECT_EQ(parse_cpu_binding("core", "").error().describe(),
            "--cpu-bind=core must be one of cores, none, numa (did you mean \"cores\"?)");
  EXPECT_EQ(parse_cpu_binding("none", "nodes").error().describe(),
            "--numa-binding=nodes must be one of core-complex, exclusive, node, socket (did you mean \"node\"?)");
  EXPECT_EQ(parse_cpu_binding("cores", "node").error().describe(),
            "--cpu-bind=cores and --numa-binding=node both say where workers run\n  hint: give one of them");
}

}  // namespace
}  // namespace cohort::elastic
