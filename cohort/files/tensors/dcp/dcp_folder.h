/// Folders of torch.distributed.checkpoint: `.metadata` (dcp_metadata.h) and files of records. Each record is torch.save's output
/// for a chunk of a tensor, or for a value.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"

namespace cohort::files {

/// Opens a folder. Values that are not Python's plain ones are in StoredCheckpoint::unreadable.
base::Result<StoredCheckpoint> open_dcp_folder(const std::string& folder);

/// Writes a checkpoint of any kind as such a folder, which torch.distributed.checkpoint.load reads on any number of ranks: a file
/// for each tensor and value, and `.metadata` last. Reads the tensors' bytes while it writes. Fails if the folder already has a
/// `.metadata`, and for values that could not be read.
base::Result<void> write_dcp_folder(const StoredCheckpoint& checkpoint, const std::string& folder);

/// Writes a checkpoint of any kind as one file. If its name ends in .pt, .pth or .bin, it is a file of torch.save with the nested
/// dicts that the keys came from; otherwise a safetensors file with the values as texts of its metadata. Needs a few MiB of
/// memory, whatever the size.
base::Result<void> consolidate(const StoredCheckpoint& checkpoint, const std::string& file);
/// Writes a file of torch.save, whatever its name.
base::Result<void> consolidate_pt(const StoredCheckpoint& checkpoint, const std::string& file);

}  // namespace cohort::files
