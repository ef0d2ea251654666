/// Folders of torch.distributed.checkpoint: `.metadata` (dcp_metadata.h) and files of records, each what torch.save made of a
/// chunk of a tensor, or of a value.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"

namespace cohort::files {

/// Values that are none of Python's plain ones are in StoredCheckpoint::unreadable.
base::Result<StoredCheckpoint> open_dcp_folder(const std::string& folder);

/// Writes a checkpoint of any kind as such a folder, which torch.distributed.checkpoint.load reads on any number of ranks: a file
/// for each tensor and value, `.metadata` last. The tensors' bytes are read while they are written.
/// Fails where the folder has a `.metadata` already, and for values that could not be read.
base::Result<void> write_dcp_folder(const StoredCheckpoint& checkpoint, const std::string& folder);

/// Writes a checkpoint of any kind as one file, of torch.save where its name ends in .pt, .pth or .bin, with the nested dicts
/// that the keys came from, else of safetensors, with the values as texts of its metadata. Memory: a few MiB, whatever the
/// size.
base::Result<void> consolidate(const StoredCheckpoint& checkpoint, const std::string& file);
/// The same as a file of torch.save, whatever its name.
base::Result<void> consolidate_pt(const StoredCheckpoint& checkpoint, const std::string& file);

}  // namespace cohort::files
