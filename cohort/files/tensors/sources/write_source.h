/// A TensorSource as a file or folder of another format. Tensors come and go piece by piece; of a folder, one at a time.
///
/// A file appears whole or not at all, mode 0600. What is there already is replaced.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Values that are no tensors become a text of its metadata (kValuesMetadata).
/// Fails for dtypes that the format has no name for.
base::Result<void> write_safetensors(const TensorSource& source, const std::string& path);

/// What torch.save writes of a flat OrderedDict of all tensors and values, by their names with dots.
base::Result<void> write_pt(const TensorSource& source, const std::string& path);

/// Safetensors files with an index, as save_sharded() writes.
base::Result<void> write_sharded_folder(const TensorSource& source, const std::string& path);

}  // namespace cohort::files
