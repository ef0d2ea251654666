#include "cohort/base/file/file.h"
#include "cohort/base/file/atomic_file.h"
#include "cohort/base/system/env.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"

namespace cohort::base {
namespace {

TEST(File, AtomicWriteReplacesAndLeavesNothingElse) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomically(folder / "a", "old"));
  ASSERT_TRUE(write_file_atomically(folder / "a", std::string("new\0text", 8)));
  EXPECT_EQ(*read_file(folder / "a"), std::string("new\0text", 8));
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(File, AtomicWriteIntoMissingFolderMessage) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "no/a";
  const Result<void> written = write_file_atomically(path, "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message(), "cannot write \"" + path + "\"");
  EXPECT_TRUE(written.error().cause()->message().ends_with("No such file or directory (ENOENT)"));
}

TEST(File, ReadsFilesWithoutKnownSize) {
  const Result<std::string> text = read_file("/proc/self/status");
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("Name:"), std::string::npos);
}

TEST(File, ReadMissingFileMessage) {
  EXPECT_EQ(read_file("/no/such").error().describe(), "cannot open \"/no/such\": No such file or directory (ENOENT)");
}

TEST(File, FdClosesOnceWhenMoved) {
  Fd first(::open("/dev/null", O_RDONLY));
  const int number = first.get();
  Fd second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is left behind is what this is about
  EXPECT_EQ(second.get(), number);
  second.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(File, WriteToClosedDescriptorMessage) {
  EXPECT_EQ(write_all(-1, "hello").error().describe(),
            "cannot write 5 B to descriptor -1: Bad file descriptor (EBADF)");
}

TEST(File, AFullDiskNamesTheFileMessage) {
  const Fd full(::open("/dev/full", O_WRONLY));
  EXPECT_EQ(write_all(full.get(), "hello", "/logs/a").error().describe(),
            "cannot write 5 B to \"/logs/a\": No space left on device (ENOSPC)");
}

TEST(File, AFileThatIsTooLongIsAnErrorMessage) {
  // Files in /proc do not say how long they are.
  EXPECT_EQ(read_file("/proc/kallsyms", 1024).error().describe(), "\"/proc/kallsyms\" has more than 1.0 KiB");
}

TEST(File, TheTemporaryFolderIsNeverTheRoot) {
  const auto before = get_env("TMPDIR");
  set_env("TMPDIR", "/elsewhere");
  EXPECT_EQ(temporary_folder(), "/elsewhere");
  set_env("TMPDIR", "");
  EXPECT_EQ(temporary_folder(), "/tmp");
  unset_env("TMPDIR");
  EXPECT_EQ(temporary_folder(), "/tmp");
  if (before) set_env("TMPDIR", *before);
}

}  // namespace
}  // namespace cohort::base
