/// Opens any file or folder of tensors, by its content.
#pragma once

#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Opens PyTorch's files (pt_source.h), safetensors files, folders of them with an index, and folders of
/// torch.distributed.checkpoint (stored_source.h). For a folder with one file of tensors, and perhaps a manifest, opens that
/// file.
base::Result<std::unique_ptr<TensorSource>> open_tensor_source(const std::string& path);

}  // namespace cohort::files
