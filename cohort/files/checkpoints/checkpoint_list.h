/// What is in the folder of a run's checkpoints, and which of it can be trusted. Reads only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/checkpoints/manifest.h"

namespace cohort::files {

enum class CheckpointCheck {
  kSizes,      ///< the manifest, and that every file is there with its size: costs one look per file
  kChecksums,  ///< every byte as well
};

/// The manifest of a checkpoint's folder. The error says what is missing or wrong.
base::Result<Manifest> read_manifest(const std::string& folder);
/// That a file is as the manifest says. The error: `"model.safetensors" has 100 bytes, but the manifest says 120`.
base::Result<void> check_file(const std::string& folder, const ManifestFile& file, CheckpointCheck check);
/// That a folder holds a whole, undamaged checkpoint of the step in its name. Other files in it do not matter.
base::Result<Manifest> check_checkpoint(const std::string& folder, CheckpointCheck check);

struct FoundCheckpoint {
  /// The folder's name, "step-00001200".
  std::string name;
  int64_t step = 0;
  /// Nothing for one that is unfinished or damaged: then `problem` says why.
  std::optional<Manifest> manifest;
  std::string problem;
};

struct CheckpointList {
  /// The newest first.
  std::vector<FoundCheckpoint> checkpoints;
  /// Names of what saves and removals have left that were cut short, or that go on just now.
  std::vector<std::string> temporary;
};

/// Nothing where there is no such folder; an error where it cannot be read.
base::Result<CheckpointList> list_checkpoints(const std::string& root, CheckpointCheck check);

}  // namespace cohort::files
