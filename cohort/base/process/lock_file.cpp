#include "cohort/base/process/lock_file.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "cohort/base/file/open_file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeUntilMessage{3};
constexpr std::chrono::milliseconds kPause{50};
constexpr size_t kLongestOwner = 4096;

// The process that had the lock removed the file at its end. Then our descriptor refers to a file without a name, and locks
// nothing.
bool is_still_at(const Fd& fd, const std::string& path) {
  struct stat ours {
  }, named{};
  return fstat(fd.get(), &ours) == 0 && stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

// Only people read this text, so a full disk does not matter.
void write_owner(const std::string& path) {
  const Result<Fd> file = open_regular_file(path, O_WRONLY | O_TRUNC | O_NOFOLLOW);
  const std::string text = fmt::format("pid {} on {}\n", ::getpid(), host_name());
  if (file) (void)!::write(file->get(), text.data(), text.size());
}

}  // namespace

Result<std::optional<LockFile>> LockFile::try_take(const std::string& path) {
  bool needs_writing = false;
  for (;;) {
    // Opened for writing only if needed (NFS needs it): a file open for writing would keep others from making the file system
    // read-only.
    const int access = needs_writing ? O_RDWR : O_RDONLY;
    Result<Fd> fd = open_regular_file(path, access | O_CREAT | O_NOFOLLOW);
    if (!fd) return Error(fmt::format("cannot write \"{}\": {}", path, fd.error().message()));
    if (flock(fd->get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_still_at(*fd, path)) continue;
      write_owner(path);
      return std::optional<LockFile>(LockFile(path, std::move(*fd)));
    }
    if (errno == EBADF && !needs_writing) {
      needs_writing = true;
      continue;
    }
    if (errno == EWOULDBLOCK) return std::optional<LockFile>();
    if (errno != EINTR) return Error(fmt::format("cannot lock \"{}\": {}", path, errno_text(errno)));
  }
}

std::string LockFile::owner(const std::string& path) {
  const Result<std::string> text = read_file(path, kLongestOwner);
  return text ? first_line(*text) : "";
}

Result<LockFile> LockFile::take(const std::string& path, std::chrono::milliseconds timeout) {
  const auto start = Clock::now();
  timeout = bounded_time(timeout);
  bool has_said = false;
  for (;;) {
    Result<std::optional<LockFile>> lock = try_take(path);
    if (!lock) return lock.error();
    if (*lock) return std::move(**lock);
    const auto waited = Clock::now() - start;
    const std::string known = waited >= std::min<Clock::duration>(timeout, kTimeUntilMessage) ? owner(path) : "";
    const std::string other = known.empty() ? "another process" : "another process (" + known + ")";
    if (waited >= timeout) {
      return Error(fmt::format("{} has had \"{}\" locked for {}", other, path, format_duration(timeout)));
    }
    if (!has_said && waited >= kTimeUntilMessage) {
      log_warning(fmt::format("waiting for {}, which has locked \"{}\"", other, path));
      has_said = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

LockFile::~LockFile() {
  if (fd_) ::unlink(path_.c_str());
}

}  // namespace cohort::base
