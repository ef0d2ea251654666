/// Writes a TensorSource as a file or folder of another format. Reads and writes tensors piece by piece; in a folder, one at a
/// time.
///
/// A file appears complete or not at all, with mode 0600. Replaces existing files.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Writes a safetensors file. Values that are not tensors become a text of its metadata (kValuesMetadata). Fails for dtypes that
/// the format has no name for.
base::Result<void> write_safetensors(const TensorSource& source, const std::string& path);

/// Writes torch.save's output for a flat OrderedDict of all tensors and values, by their names with dots.
base::Result<void> write_pt(const TensorSource& source, const std::string& path);

/// Writes safetensors files with an index, as save_sharded() does.
base::Result<void> write_sharded_folder(const TensorSource& source, const std::string& path);

}  // namespace cohort::files
