/// A .pt file as a TensorSource.
#pragma once

#include <memory>
#include <string>

#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Opens a .pt file. Values in dicts and lists have names with dots: "optimizer.state.0.exp_avg". If the complete value is one
/// tensor, its name is "". The metadata are what PyTorch stores beside the values: "byte_order", "num_storages". Errors are those
/// of read_pt_file, and trees that have more paths than the file has bytes.
base::Result<std::unique_ptr<TensorSource>> open_pt_file(const std::string& path);
/// Uses a file that is already open; `path` is its own.
base::Result<std::unique_ptr<TensorSource>> open_pt_file(const RandomAccessFile& file);

}  // namespace cohort::files
