/// Any file or folder of tensors, by what is in it.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// PyTorch's files (pt_source.h), safetensors files, folders of them with an index, and those of torch.distributed.checkpoint
/// (stored_source.h). A folder that holds one file of tensors, besides a manifest, is that file.
base::Result<std::unique_ptr<TensorSource>> open_tensor_source(const std::string& path);

}  // namespace cohort::files
