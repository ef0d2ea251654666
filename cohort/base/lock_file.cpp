#include "cohort/base/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "cohort/base/log.h"
#include "cohort/base/text.h"

namespace cohort::base {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeUntilMessage{3};
constexpr std::chrono::milliseconds kPause{50};

// Whoever had the lock removed the file when it was done: then what we hold is a file without a name, and locks nothing.
bool is_still_at(const Fd& fd, const std::string& path) {
  struct stat ours {
  }, named{};
  return fstat(fd.get(), &ours) == 0 && stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& path, std::chrono::milliseconds timeout) {
  const auto start = Clock::now();
  bool has_said = false;
  for (;;) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return Error(fmt::format("cannot write \"{}\": {}", path, errno_text(errno)));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      if (is_still_at(fd, path)) return LockFile(path, std::move(fd));
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error(fmt::format("cannot lock \"{}\": {}", path, errno_text(errno)));
    }
    const auto waited = Clock::now() - start;
    if (waited >= timeout) {
      return Error(fmt::format("another process has had \"{}\" locked for {}", path, format_duration(timeout)));
    }
    if (!has_said && waited >= kTimeUntilMessage) {
      log_warning(fmt::format("waiting for another process, which has locked \"{}\"", path));
      has_said = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

LockFile::~LockFile() {
  if (fd_) ::unlink(path_.c_str());
}

}  // namespace cohort::base
