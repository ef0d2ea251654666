/// FolderLock: one job at a time saves its checkpoints in a folder.
///
/// A file ".lock" in the folder says which process saves there, rank 0 of its job. It goes with the process's last FolderLock of
/// the folder, and locks nobody out once the process is gone, however it ended.
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
  /// Makes the folder if it is absent. Waits a few seconds for a process that may be ending; then the error names the process
  /// that saves there. Does nothing if this object has the lock.
  base::Result<void> take();
  /// The same where the folder is there and can be locked; that it cannot is for a save to say.
  base::Result<void> take_if_possible();

 private:
  base::Result<bool> try_take();

  std::string folder_;
  std::shared_ptr<base::LockFile> lock_;
};

}  // namespace cohort::checkpoint
