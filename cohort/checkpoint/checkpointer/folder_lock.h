/// FolderLock: lets one job at a time save its checkpoints in a folder.
///
/// A file ".lock" in the folder names the process that saves there, rank 0 of its job. The lock is released with the process's
/// last FolderLock of the folder. A process that has ended, in any way, locks nobody out.
/// Thread-safety: one thread at a time for each object.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/base/process/lock_file.h"

namespace cohort::checkpoint {

class FolderLock {
 public:
  explicit FolderLock(std::string folder) : folder_(std::move(folder)) {}
  /// Takes the lock, and makes the folder if it does not exist. Waits a few seconds for a process that may be ending; then the
  /// error names the process that saves there. Does nothing if this object has the lock.
  base::Result<void> take();
  /// As above, if the folder exists and can be locked. Otherwise returns without the lock; the first save reports the reason.
  base::Result<void> take_if_possible();

 private:
  base::Result<bool> try_take();

  std::string folder_;
  std::shared_ptr<base::LockFile> lock_;
};

}  // namespace cohort::checkpoint
