/// LockFile: one process of a host at a time does something with a folder; the others wait until it has finished or died.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// A file that is locked (flock) while this object lives, and removed with it; it says who has it. One that a killed process left
/// behind locks nobody out.
class LockFile {
 public:
  /// Waits for another process that has the lock, at most `timeout`; after a few seconds a message says for whom.
  static Result<LockFile> take(const std::string& path, std::chrono::milliseconds timeout);
  /// Nothing: another process has the lock.
  static Result<std::optional<LockFile>> try_take(const std::string& path);
  /// Who has, or had, the lock: "pid 71 on node7"; "" where that is not known.
  static std::string owner(const std::string& path);
  LockFile(LockFile&& other) noexcept = default;
  ~LockFile();

 private:
  LockFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;
};

}  // namespace cohort::base
