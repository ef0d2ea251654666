#include "cohort/extras/files/sets/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cohort/base/file/file.h"
#include "cohort/extras/files/sets/folder_target.h"
#include "tests/extras/files/sets/archives.h"

namespace cohort::files {
namespace {

using test::gzip;
using test::tar_end;
using test::tar_entry;

/// Everything as text: "folder a/", "file a/b=contents".
class TextTarget final : public UnpackTarget {
 public:
  base::Result<void> add_folder(const std::string& name) override {
    text += "folder " + name + "\n";
    return {};
  }
  base::Result<void> begin_file(const std::string& name) override {
    text += "file " + name + "=";
    return {};
  }
  base::Result<void> write(std::string_view bytes) override {
    text.append(bytes).append("\n");
    return {};
  }
  std::string text;
};

// What comes out, or the error.
std::string unpacked(const std::string& archive, UnpackLimits limits = {.max_bytes = 1000}) {
  TextTarget target;
  const auto result = unpack_tar_gz(InputFile::view("a.tar.gz", archive), limits, target);
  return result ? target.text : result.error().describe();
}

TEST(Unpack, TarGivesFilesAndFolders) {
  const std::string tar =
      tar_entry("set/", "", '5') + tar_entry("set/one", "1st") + tar_entry("set/two", "2nd") + tar_end();
  EXPECT_EQ(unpacked(gzip(tar)), "folder set/\nfile set/one=1st\nfile set/two=2nd\n");
}

TEST(Unpack, GzGivesTheOneFile) {
  TextTarget target;
  ASSERT_TRUE(unpack_gz(InputFile::view("a.gz", gzip("digits")), "train", {.max_bytes = 6}, target).ok());
  EXPECT_EQ(target.text, "file train=digits\n");
  target.text.clear();
  ASSERT_TRUE(unpack_gz(InputFile::view("a.gz", gzip("")), "train", {.max_bytes = 6}, target).ok());
  EXPECT_EQ(target.text, "file train=");
}

TEST(Unpack, UnsafeEntriesMessages) {
  const auto with = [](const std::string& entry) { return unpacked(gzip(tar_entry("ok", "1") + entry + tar_end())); };
  EXPECT_EQ(with(tar_entry("set/../../evil", "x")),
            "cannot unpack \"a.tar.gz\": it holds \"set/../../evil\", which has \"..\" in its name");
  EXPECT_EQ(with(tar_entry("/etc/evil", "x")),
            "cannot unpack \"a.tar.gz\": it holds \"/etc/evil\", which is an absolute path");
  EXPECT_EQ(with(tar_entry("link", "", '2', "/etc")), "cannot unpack \"a.tar.gz\": it holds \"link\", which is a link");
  EXPECT_EQ(with(tar_entry("hard", "", '1', "ok")), "cannot unpack \"a.tar.gz\": it holds \"hard\", which is a link");
  EXPECT_EQ(with(tar_entry("null", "", '3')),
            "cannot unpack \"a.tar.gz\": it holds \"null\", which is neither a file nor a folder");
}

TEST(Unpack, LimitsMessages) {
  const std::string tar =
      gzip(tar_entry("a", std::string(600, 'a')) + tar_entry("b", std::string(400, 'b')) + tar_end());
  EXPECT_EQ(unpacked(tar, {.max_bytes = 999}), "cannot unpack \"a.tar.gz\": it holds more than the 999 B that it may");
  EXPECT_THAT(unpacked(tar, {.max_bytes = 1000}), testing::StartsWith("file a="));
  EXPECT_EQ(unpacked(tar, {.max_bytes = 1000, .max_entries = 1}),
            "cannot unpack \"a.tar.gz\": it has more than 1 entries");
}

TEST(Unpack, OtherFormatsMessages) {
  const std::string tar = tar_entry("a", "1") + tar_end();
  EXPECT_EQ(unpacked(tar), "\"a.tar.gz\", at byte 0: expected gzip's first bytes, 1f 8b, but found others");
  EXPECT_EQ(unpacked(gzip(gzip(tar))), "cannot unpack \"a.tar.gz\": it is compressed several times");
  EXPECT_EQ(unpacked(""), "\"a.tar.gz\", at byte 0: expected gzip's first bytes, 1f 8b, but found others");
}

TEST(Unpack, CutArchivesAreErrors) {
  const std::string archive = gzip(tar_entry("a", "1st") + tar_entry("b", std::string(600, 'b')) + tar_end());
  for (size_t size = 0; size < archive.size() - 1024; size += 7) {
    EXPECT_THAT(unpacked(archive.substr(0, size)), testing::HasSubstr("\"a.tar.gz\"")) << size;
  }
}

class FolderTargetTest : public testing::Test {
 protected:
  FolderTargetTest() { folder_ = base::make_unique_directory(testing::TempDir() + "cohort_unpack_").value(); }
  ~FolderTargetTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FolderTargetTest, WritesFilesThatTheirOwnerMayRead) {
  FolderTarget target(folder_);
  const std::string archive = gzip(tar_entry("set/deep/one", "1st") + tar_end());
  ASSERT_TRUE(unpack_tar_gz(InputFile::view("a.tar.gz", archive), {.max_bytes = 10}, target).ok());
  const std::string path = folder_ + "/set/deep/one";
  EXPECT_EQ(base::read_file(path).value(), "1st");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(stat((folder_ + "/set").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

TEST_F(FolderTargetTest, NeitherANameTwiceNorAFileAsAFolder) {
  FolderTarget target(folder_);
  ASSERT_TRUE(target.begin_file("one").ok());
  EXPECT_EQ(target.begin_file("one").error().describe(), "cannot create \"" + folder_ + "/one\": File exists (EEXIST)");
  EXPECT_EQ(target.begin_file("one/two").error().describe(),
            "cannot create \"" + folder_ + "/one/two\": Not a directory (ENOTDIR)");
}

}  // namespace
}  // namespace cohort::files
