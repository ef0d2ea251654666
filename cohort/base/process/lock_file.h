/// LockFile: lets one process of a host at a time work on a folder; the others wait until it has finished or died.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// A file that is locked (flock) while this object lives, and then removed. It says which process has the lock. A file that a
/// killed process left behind blocks nobody.
class LockFile {
 public:
  /// Waits at most `timeout` for another process that has the lock; after a few seconds a message names that process.
  static Result<LockFile> take(const std::string& path, std::chrono::milliseconds timeout);
  /// Returns an empty optional if another process has the lock.
  static Result<std::optional<LockFile>> try_take(const std::string& path);
  /// Returns the process that has, or had, the lock: "pid 71 on node7"; "" if it is not known.
  static std::string owner(const std::string& path);
  LockFile(LockFile&& other) noexcept = default;
  ~LockFile();

 private:
  LockFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;
};

}  // namespace cohort::base
