/// CheckpointDraft: a checkpoint while it is written. It appears under its name complete or not at all, even if this process is
/// killed or the disk fails.
///
/// The files are written into a folder with a temporary name. publish() writes the manifest, syncs everything to disk, and
/// renames the folder. A lock beside it tells other processes that its writer is alive. All files of a checkpoint belong to one
/// draft of one process; other processes may write some of them into folder(), and seal them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/files/checkpoints/manifest.h"

namespace cohort::files {

/// Syncs a file of a draft to disk (fsync) and describes it for the manifest. `name` is relative to `folder`. Called by the
/// process that wrote the file.
base::Result<ManifestFile> seal_file(const std::string& folder, const std::string& name);

class CheckpointDraft {
 public:
  /// Creates the folder (mode 0700), and `root` if it does not exist. Requires step >= 0.
  static base::Result<CheckpointDraft> begin(const std::string& root, int64_t step);
  CheckpointDraft(CheckpointDraft&& other) noexcept
      : root_(std::move(other.root_)),
        step_(other.step_),
        folder_(std::exchange(other.folder_, {})),
        lock_(std::move(other.lock_)) {}
  CheckpointDraft& operator=(CheckpointDraft&&) = delete;
  /// Removes the draft if it has not been published.
  ~CheckpointDraft();

  const std::string& folder() const { return folder_; }
  /// Seals the files of folder() that `manifest` does not list, completes the manifest with them and the step, and renames the
  /// folder. Replaces a checkpoint of the same step, in one operation if the file system can exchange two names. Returns the
  /// checkpoint's folder. After an error there is none, unless the error came after the renaming: then the checkpoint is
  /// complete.
  base::Result<std::string> publish(Manifest manifest);

 private:
  CheckpointDraft(std::string root, int64_t step, std::string folder, base::LockFile lock)
      : root_(std::move(root)), step_(step), folder_(std::move(folder)), lock_(std::move(lock)) {}
  base::Result<void> complete(Manifest& manifest);
  base::Result<void> take_name(const std::string& path);

  std::string root_;
  int64_t step_;
  /// Empty after it is moved from.
  std::string folder_;
  base::LockFile lock_;
};

/// Removes a checkpoint. No incomplete checkpoint is left under its name.
base::Result<void> remove_checkpoint(const std::string& root, int64_t step);

/// Removes the remains of interrupted saves and removals. Drafts whose writer is alive stay, and so does everything that cannot
/// be removed. Returns the names of what was removed.
std::vector<std::string> remove_leftovers(const std::string& root);

}  // namespace cohort::files
