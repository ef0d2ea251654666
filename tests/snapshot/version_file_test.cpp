// A memory file holds a version from commit() on, and whatever else is in it is not taken for one.
#include "cohort/snapshot/version_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace cohort::snapshot {
namespace {

constexpr Version kVersion{.step = 7,
                           .world_size = 4,
                           .rank = 3,
                           .first_rank = 2,
                           .local_world_size = 2,
                           .num_own_bytes = 5000,
                           .shared_total = 100,
                           .shared_begin = 64,
                           .num_shared_bytes = 36,
                           .shared_layout = 99};

Version with_meta(const std::string& meta) {
  Version version = kVersion;
  version.num_meta_bytes = meta.size();
  return version;
}

VersionFile written(base::Fd* fd, const std::string& meta = "what it is") {
  VersionFile file = *VersionFile::create(64 << 10, fd);
  const Version version = with_meta(meta);
  file.begin(version, meta);
  std::memset(file.own(version).data(), 1, 5000);
  std::memset(file.shared(version).data(), 2, 36);
  return file;
}

TEST(VersionFile, CountsFromCommitOn) {
  base::Fd fd;
  VersionFile file = written(&fd);
  EXPECT_FALSE(file.read());
  file.commit();
  EXPECT_EQ(file.read(), with_meta("what it is"));
  EXPECT_EQ(file.meta(*file.read())[0], std::byte{'w'});
  EXPECT_EQ(file.own(*file.read())[4999], std::byte{1});
  EXPECT_EQ(file.shared(*file.read())[35], std::byte{2});
  file.begin(with_meta("next"), "next");
  EXPECT_FALSE(file.read()) << "it is being written over";
  file.commit();
  EXPECT_TRUE(file.read());
  file.invalidate();
  EXPECT_FALSE(file.read());
}

TEST(VersionFile, IsReadThroughItsDescriptor) {
  base::Fd fd;
  {
    VersionFile file = written(&fd);
    file.commit();
  }
  const auto again = VersionFile::open(fd, 64 << 10);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->read(), with_meta("what it is"));
}

TEST(VersionFile, IsForItsOwnerAndCannotShrink) {
  base::Fd fd;
  written(&fd);
  struct stat info {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
}

TEST(VersionFile, AnyBitOfItsHeaderMatters) {
  base::Fd fd;
  VersionFile file = written(&fd);
  file.commit();
  const size_t head = 24 + sizeof(Version);
  for (size_t at = 0; at < head; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      file.bytes()[at] ^= std::byte(1 << bit);
      EXPECT_FALSE(file.read()) << "byte " << at << ", bit " << bit;
      file.bytes()[at] ^= std::byte(1 << bit);
    }
  }
  file.bytes()[kHeaderBytes + 3] ^= std::byte{1};
  EXPECT_FALSE(file.read()) << "the description";
}

TEST(VersionFile, PartsMustFitIntoTheFile) {
  base::Fd fd;
  VersionFile file = written(&fd);
  file.commit();
  const auto bytes = file.bytes();
  EXPECT_TRUE(read_version(bytes, 4096 * 5, true));
  EXPECT_FALSE(read_version(bytes, 4096 * 5 - 1, true));
  EXPECT_TRUE(read_version(bytes, 4096 * 4, false)) << "a copy has no shared bytes";
  EXPECT_FALSE(read_version(bytes, 4096 * 4 - 1, false));
  EXPECT_FALSE(read_version(bytes.first(100), 64 << 10, true));
  EXPECT_FALSE(read_version({}, 0, true));
  EXPECT_EQ(bytes_to_read(bytes.first(4096), 64 << 10), 8192u);
  EXPECT_EQ(bytes_to_read({}, 64 << 10), 0u);
}

TEST(VersionFile, NumbersThatNoFileHas) {
  const auto with = [](auto change) {
    Version version = kVersion;
    change(version);
    return parts_of(version).has_value();
  };
  EXPECT_TRUE(with([](Version&) {}));
  EXPECT_FALSE(with([](Version& g) { g.num_meta_bytes = ~uint64_t{0}; }));
  EXPECT_FALSE(with([](Version& g) { g.num_own_bytes = ~uint64_t{0} - 4096; }));
  EXPECT_FALSE(with([](Version& g) { g.num_shared_bytes = ~uint64_t{0}; }));
  EXPECT_FALSE(with([](Version& g) { g.shared_begin = 101; }));
  EXPECT_FALSE(with([](Version& g) { g.rank = 4; }));
  EXPECT_FALSE(with([](Version& g) { g.rank = -1; }));
  EXPECT_FALSE(with([](Version& g) { g.first_rank = 1; }));
  EXPECT_FALSE(with([](Version& g) { g.local_world_size = 0; }));
  EXPECT_FALSE(with([](Version& g) { g.local_world_size = 3; }));
}

TEST(VersionFile, OrderCountsInTheChecksum) {
  const std::vector<std::byte> a = {std::byte{1}, std::byte{0}};
  const std::vector<std::byte> b = {std::byte{0}, std::byte{1}};
  const std::vector<std::byte> c = {std::byte{1}};
  EXPECT_NE(checksum_of(a), checksum_of(b));
  EXPECT_NE(checksum_of(a), checksum_of(c));
}

}  // namespace
}  // namespace cohort::snapshot
