// What limits memory, as the kernel tells it: folders that look like cgroups stand in for the real ones.
#include "cohort/snapshot/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace cohort::snapshot {
namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(FreeMemory, IsWhatTheHostHasLeft) {
  const test::TemporaryFolder folder;
  const auto available = free_memory(folder.path(), "", "MemTotal: 100 kB\nMemAvailable:     64 kB\n");
  ASSERT_TRUE(available);
  EXPECT_EQ(available->num_bytes, 64u << 10);
  EXPECT_EQ(available->limited_by, "the host");
}

TEST(FreeMemory, IsWhatTheSmallestGroupAllows) {
  const test::TemporaryFolder folder;
  write(folder.path() + "/job/memory.max", "10000\n");
  write(folder.path() + "/job/memory.current", "9000\n");
  write(folder.path() + "/job/memory.stat", "anon 5000\ninactive_file 500\n");
  write(folder.path() + "/job/step/memory.max", "max\n");
  write(folder.path() + "/job/step/memory.current", "9000\n");
  const auto available = free_memory(folder.path(), "0::/job/step\n", "MemAvailable: 64 kB\n");
  ASSERT_TRUE(available);
  EXPECT_EQ(available->num_bytes, 1500u) << "what the page cache would give back counts";
  EXPECT_EQ(available->limited_by, "the cgroup \"/job\" (memory.max)");
}

TEST(FreeMemory, OfVersion1) {
  const test::TemporaryFolder folder;
  write(folder.path() + "/memory/box/memory.limit_in_bytes", "5000\n");
  write(folder.path() + "/memory/box/memory.usage_in_bytes", "6000\n");
  const auto available = free_memory(folder.path(), "5:cpu:/x\n4:memory:/box\n", "");
  ASSERT_TRUE(available);
  EXPECT_EQ(available->num_bytes, 0u);
  EXPECT_EQ(available->limited_by, "the cgroup \"/box\" (memory.limit_in_bytes)");
}

TEST(FreeMemory, IsUnknownWhereNobodyTells) {
  const test::TemporaryFolder folder;
  EXPECT_FALSE(free_memory(folder.path(), "garbage\n", "garbage"));
}

TEST(FreeMemory, RefusesWhatIsNotThere) {
  EXPECT_TRUE(check_free_memory(4096));
  const auto refused = check_free_memory(uint64_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message().starts_with("1.0 EiB of memory are needed, and the "))
      << refused.error().message();
  EXPECT_TRUE(
      refused.error().describe().ends_with(" left\n  hint: give the job more memory, or fewer ranks to this host"));
}

}  // namespace
}  // namespace cohort::snapshot
