#include "cohort/base/machine/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "tests/support/temporary_folder.h"

namespace cohort::base {
namespace {

void put(const test::TemporaryFolder& root, const std::string& folder, const std::string& name,
         const std::string& text) {
  ASSERT_TRUE(make_directories(root / folder));
  ASSERT_TRUE(write_file_atomically(root / (folder + "/" + name), text));
}

TEST(Cpu, Version2QuotaOfOwnGroup) {
  const test::TemporaryFolder root;
  put(root, "job/step", "cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "0::/job/step\n"), 1.5);
}

TEST(Cpu, SmallestQuotaOnTheWayUpWins) {
  const test::TemporaryFolder root;
  put(root, ".", "cpu.max", "400000 100000\n");
  put(root, "job", "cpu.max", "200000 100000\n");
  put(root, "job/step", "cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "0::/job/step\n"), 2.0);
  put(root, "job", "cpu.max", "600000 100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "0::/job/step\n"), 4.0);
}

TEST(Cpu, ContainerSeesOnlyItsRoot) {
  const test::TemporaryFolder root;
  put(root, ".", "cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "0::/not/visible/here\n"), 4.0);
}

TEST(Cpu, Version1Quota) {
  const test::TemporaryFolder root;
  put(root, "cpu,cpuacct/box", "cpu.cfs_quota_us", "300000\n");
  put(root, "cpu,cpuacct/box", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "5:cpu,cpuacct:/box\n4:memory:/box\n"), 3.0);
}

TEST(Cpu, NoQuotaIsNoLimit) {
  const test::TemporaryFolder root;
  put(root, "cpu/box", "cpu.cfs_quota_us", "-1\n");
  put(root, "cpu/box", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_core_limit(root.path(), "5:cpu:/box\n"), std::nullopt);
  EXPECT_EQ(cgroup_core_limit(root.path(), "garbage"), std::nullopt);
}

TEST(Cpu, AffinityMaskLimitsCores) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  EXPECT_EQ(default_threads_per_rank(4), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(available_cores(), CPU_COUNT(&before));
}

}  // namespace
}  // namespace cohort::base
