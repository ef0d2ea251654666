#include "cohort/base/file/open_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/disk_space.h"
#include "cohort/base/numbers/count.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/base/system/host.h"
#include "tests/support/temporary_folder.h"

namespace cohort::base {
namespace {

using std::chrono::milliseconds;

/// What a child says that does something which must not change this process.
std::string in_child(const std::function<std::string()>& work) {
  Pipe pipe = make_pipe().value();
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)write_all(pipe.write_end.get(), work());
    ::_exit(0);
  }
  pipe.write_end.reset();
  std::string said;
  char buffer[4096];
  for (ssize_t count; (count = ::read(pipe.read_end.get(), buffer, sizeof buffer)) > 0;) said.append(buffer, count);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) said += "ended by signal " + std::to_string(WTERMSIG(status));
  return said;
}

class OpenFile : public testing::Test {
 protected:
  OpenFile() { EXPECT_EQ(::mkfifo(pipe_.c_str(), 0600), 0); }
  const test::TemporaryFolder folder_;
  const std::string pipe_ = folder_ / "pipe";
};

TEST_F(OpenFile, OnlyARegularFileMessages) {
  EXPECT_EQ(open_regular_file(pipe_).error().message(), "it is not a regular file");
  EXPECT_EQ(open_regular_file("/dev/zero").error().message(), "it is not a regular file");
  EXPECT_EQ(open_regular_file(folder_.path()).error().message(), "it is a folder");
  EXPECT_EQ(open_regular_file(folder_ / "none").error().message(), "No such file or directory (ENOENT)");
  EXPECT_EQ(read_file(pipe_).error().describe(), "cannot open \"" + pipe_ + "\": it is not a regular file");
  // A pipe that somebody reads opens for writing; one that nobody reads does not.
  EXPECT_EQ(open_for_writing(pipe_).error().describe(),
            "cannot open \"" + pipe_ + "\": No such device or address (ENXIO)");
  const Fd reader(::open(pipe_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(open_for_writing(pipe_).error().describe(), "cannot open \"" + pipe_ + "\": it is not a regular file");
}

TEST_F(OpenFile, NoMemoryForTheSizeThatAFileClaims) {
  const std::string path = folder_ / "sparse";
  ASSERT_TRUE(open_for_writing(path));
  ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 42), 0);
  EXPECT_EQ(read_file(path, 1 << 20).error().describe(), "\"" + path + "\" has more than 1.0 MiB");
}

TEST_F(OpenFile, NamesInAFolder) {
  for (const char* name : {"b", "a"}) ASSERT_TRUE(open_for_writing(folder_ / name));
  EXPECT_EQ(*names_in_folder(folder_.path()), (std::vector<std::string>{"a", "b", "pipe"}));
  EXPECT_EQ(names_in_folder(folder_ / "none").error().message(), "No such file or directory (ENOENT)");
  EXPECT_EQ(names_in_folder(pipe_).error().message(), "Not a directory (ENOTDIR)");
}

TEST_F(OpenFile, ClosedStandardStreamsAreNobodysFile) {
  EXPECT_EQ(in_child([] {
              ::close(STDIN_FILENO);
              ::close(STDERR_FILENO);
              open_standard_streams();
              char first[64] = {}, last[64] = {};
              (void)!::readlink("/proc/self/fd/0", first, sizeof first - 1);
              (void)!::readlink("/proc/self/fd/2", last, sizeof last - 1);
              return std::string(first) + " " + last;
            }),
            "/dev/null /dev/null");
}

void limit_files(rlim_t num_bytes) {
  const rlimit limit{num_bytes, num_bytes};
  (void)::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST_F(OpenFile, ALimitOnTheSizeOfFilesIsAnErrorMessages) {
  const std::string path = folder_ / "large";
  const std::string hint = "\n  hint: files may have at most 4.0 KiB here (ulimit -f); raise this limit";
  EXPECT_EQ(in_child([&] {
              limit_files(4096);
              const Fd file = open_for_writing(path).value();
              return write_all(file.get(), std::string(8192, 'x'), path).error().describe();
            }),
            "cannot write 4.0 KiB to \"" + path + "\": File too large (EFBIG)" + hint);
  EXPECT_EQ(in_child([&] {
              limit_files(4096);
              return AtomicFile::create(path).value().write(std::string(8192, 'x')).error().describe();
            }),
            "cannot write \"" + path + "\": File too large (EFBIG)" + hint);
  EXPECT_EQ(in_child([&] {
              limit_files(4096);
              return AtomicFile::create(path).value().reserve(8192).error().describe();
            }),
            "cannot take 8.0 KiB for \"" + path + "\": File too large (EFBIG)" + hint);
}

TEST_F(OpenFile, RoomIsLookedForBeforeAnythingIsWritten) {
  EXPECT_TRUE(check_space(folder_ / "not/yet/there", 1, "x"));
  const std::string text = check_space(folder_ / "not/yet/there", UINT64_MAX, "\"x\"").error().describe();
  EXPECT_TRUE(text.starts_with("cannot take 16.0 EiB for \"x\": No space left on device (ENOSPC)\n  hint: only "))
      << text;
  EXPECT_EQ(add_capped<uint64_t>(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(add_capped<uint64_t>(UINT64_MAX - 1, 3), UINT64_MAX);
}

TEST_F(OpenFile, ALockSaysWhoHasIt) {
  const std::string path = folder_ / "lock";
  const std::string self = "pid " + std::to_string(::getpid()) + " on " + host_name();
  {
    const auto lock = LockFile::try_take(path);
    ASSERT_TRUE(lock && *lock);
    EXPECT_EQ(LockFile::owner(path), self);
    const auto second = LockFile::try_take(path);
    EXPECT_TRUE(second && !*second);
    EXPECT_EQ(LockFile::take(path, milliseconds(1)).error().describe(),
              "another process (" + self + ") has had \"" + path + "\" locked for 1 ms");
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(LockFile::owner(path), "");
  auto lock = LockFile::try_take(path);
  std::thread patient([&] { EXPECT_TRUE(LockFile::take(path, milliseconds::max()).ok()); });
  std::this_thread::sleep_for(milliseconds(50));
  lock->reset();
  patient.join();
  EXPECT_EQ(LockFile::try_take(pipe_).error().describe(), "cannot write \"" + pipe_ + "\": it is not a regular file");
}

}  // namespace
}  // namespace cohort::base
