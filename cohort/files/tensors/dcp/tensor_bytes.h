/// Reads bytes of stored tensors piece by piece while a file is written.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/pt/pt_writer.h"

namespace cohort::files {

/// Reads bytes of the tensor's elements in row-major order, from `first` on, until `to` is full.
base::Result<void> read_tensor_bytes(CheckpointReader& reader, const std::string& key, const StoredTensor& tensor,
                                     uint64_t first, std::span<char> to);

/// Provides tensors' bytes for writers of .pt files. The checkpoint must outlive both.
class TensorBytes {
 public:
  explicit TensorBytes(const StoredCheckpoint& checkpoint)
      : reader_(std::make_shared<CheckpointReader>(checkpoint)), mutex_(std::make_shared<std::mutex>()) {}
  base::Result<StorageBytes> of(const std::string& key, const StoredTensor& tensor) const;

 private:
  std::shared_ptr<CheckpointReader> reader_;
  std::shared_ptr<std::mutex> mutex_;
};

/// Returns an error that names the first value that could not be read.
base::Result<void> all_readable(const StoredCheckpoint& checkpoint);

}  // namespace cohort::files
