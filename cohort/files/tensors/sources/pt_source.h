/// A .pt file as a TensorSource.
#pragma once

#include <memory>
#include <string>

#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Values in dicts and lists have names with dots: "optimizer.state.0.exp_avg". A file whose whole value is one tensor has one
/// named "". The metadata says what PyTorch keeps beside the values: "byte_order", "num_storages".
/// Errors: read_pt_file's, and for trees that have more paths than the file has bytes.
base::Result<std::unique_ptr<TensorSource>> open_pt_file(const std::string& path);
/// Of a file that is open already; `path` is its own.
base::Result<std::unique_ptr<TensorSource>> open_pt_file(const RandomAccessFile& file);

}  // namespace cohort::files
