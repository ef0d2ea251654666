/// Lists and checks the checkpoints in a run's folder. Only reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/checkpoints/manifest.h"

namespace cohort::files {

enum class CheckpointCheck {
  kSizes,      ///< the manifest, and that every file exists with its size: one system call per file
  kChecksums,  ///< also every byte
};

/// Reads the manifest in a checkpoint's folder. The error says what is missing or wrong.
base::Result<Manifest> read_manifest(const std::string& folder);
/// Checks that a file matches the manifest. The error is like `"model.safetensors" has 100 bytes, but the manifest says 120`.
base::Result<void> check_file(const std::string& folder, const ManifestFile& file, CheckpointCheck check);
/// Checks that a folder has a complete, undamaged checkpoint of the step in its name. Ignores other files in it.
base::Result<Manifest> check_checkpoint(const std::string& folder, CheckpointCheck check);

struct FoundCheckpoint {
  /// The folder's name, "step-00001200".
  std::string name;
  int64_t step = 0;
  /// Absent if the checkpoint is unfinished or damaged; `problem` then says why.
  std::optional<Manifest> manifest;
  std::string problem;
};

struct CheckpointList {
  /// The newest checkpoint first.
  std::vector<FoundCheckpoint> checkpoints;
  /// Names of the remains of interrupted saves and removals, and of those that are still running.
  std::vector<std::string> temporary;
};

/// Returns an empty list if there is no such folder. Returns an error if the folder cannot be read.
base::Result<CheckpointList> list_checkpoints(const std::string& root, CheckpointCheck check);

}  // namespace cohort::files
