/// A safetensors file, a folder of them with an index, or one of torch.distributed.checkpoint, as a TensorSource.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Errors: open_stored_checkpoint's (stored_checkpoint.h). Of values that cannot be read a text says why.
base::Result<std::unique_ptr<TensorSource>> open_stored_source(const std::string& path);

}  // namespace cohort::files
