/// A safetensors file, a folder of them with an index, or one of torch.distributed.checkpoint, as a TensorSource.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Opens a checkpoint. Errors are those of open_stored_checkpoint (stored_checkpoint.h). A value that cannot be read is a text
/// with the reason.
base::Result<std::unique_ptr<TensorSource>> open_stored_source(const std::string& path);

}  // namespace cohort::files
