/// A file of torch.save as a checkpoint: nested dicts become keys with dots, as torch.distributed.checkpoint flattens them. A
/// list is only flattened if it has tensors; other lists, tuples and single values are values.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"

namespace cohort::files {

base::Result<StoredCheckpoint> open_pt_checkpoint(const std::string& path);

/// Returns the place of the elements of a .pt file's tensor. The .pt file begins at byte `begin` of the file with the number
/// `file`. Fails for tensors whose elements are not in the file as they are: in the other byte order, conjugates and negatives.
base::Result<StoredChunk> chunk_of(const PtFile& description, const PtTensor& tensor, const Region& region, size_t file,
                                   uint64_t begin);

/// Converts a value of a .pt file without tensors (plain_json.h).
base::Result<Json> plain_json(const PtFile& description, const base::PickleValue& value);

}  // namespace cohort::files
