/// CheckpointDraft: a checkpoint while it is written. It appears under its name whole, or not at all, whenever this process is
/// killed, and whatever the disk refuses.
///
/// The files are written into a folder with a temporary name; publish() writes the manifest, has everything on disk, and renames
/// the folder. A lock beside it tells others that its writer lives. All files of a checkpoint belong to one draft, of one
/// process; other processes may write some of them into folder(), and seal them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/files/checkpoints/manifest.h"

namespace cohort::files {

/// Has a file of a draft on disk (fsync) and describes it for the manifest. `name`: below `folder`. Called by the process
/// that wrote it.
base::Result<ManifestFile> seal_file(const std::string& folder, const std::string& name);

class CheckpointDraft {
 public:
  /// Makes the folder (mode 0700), and `root` where it does not exist. Requires step >= 0.
  static base::Result<CheckpointDraft> begin(const std::string& root, int64_t step);
  CheckpointDraft(CheckpointDraft&& other) noexcept
      : root_(std::move(other.root_)),
        step_(other.step_),
        folder_(std::exchange(other.folder_, {})),
        lock_(std::move(other.lock_)) {}
  CheckpointDraft& operator=(CheckpointDraft&&) = delete;
  /// Removes what publish() has not given its name.
  ~CheckpointDraft();

  const std::string& folder() const { return folder_; }
  /// Seals the files of folder() that `manifest` does not list, completes the manifest with them and the step, and gives the
  /// folder its name. A checkpoint of the same step is replaced, in one step where the file system can exchange two names.
  /// Returns: the checkpoint's folder. After an error there is none, unless the error came after the renaming: then it is whole.
  base::Result<std::string> publish(Manifest manifest);

 private:
  CheckpointDraft(std::string root, int64_t step, std::string folder, base::LockFile lock)
      : root_(std::move(root)), step_(step), folder_(std::move(folder)), lock_(std::move(lock)) {}
  base::Result<void> complete(Manifest& manifest);
  base::Result<void> take_name(const std::string& path);

  std::string root_;
  int64_t step_;
  /// Empty once it is moved from.
  std::string folder_;
  base::LockFile lock_;
};

/// Removes a checkpoint, so that no half of it is left under its name.
base::Result<void> remove_checkpoint(const std::string& root, int64_t step);

/// Removes what saves and removals have left that were cut short: drafts whose writer lives stay. What cannot be removed stays,
/// too. Returns: the names of what was removed.
std::vector<std::string> remove_leftovers(const std::string& root);

}  // namespace cohort::files
