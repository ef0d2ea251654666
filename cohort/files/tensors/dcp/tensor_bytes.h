/// Bytes of stored tensors, asked for piece by piece while a file is written.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/pt/pt_writer.h"

namespace cohort::files {

/// The bytes from `first` on of the tensor's elements in row-major order, as many as `to` has.
base::Result<void> read_tensor_bytes(CheckpointReader& reader, const std::string& key, const StoredTensor& tensor,
                                     uint64_t first, std::span<char> to);

/// Makes what a writer of .pt files asks. The checkpoint must outlive it and them.
class TensorBytes {
 public:
  explicit TensorBytes(const StoredCheckpoint& checkpoint)
      : reader_(std::make_shared<CheckpointReader>(checkpoint)), mutex_(std::make_shared<std::mutex>()) {}
  base::Result<StorageBytes> of(const std::string& key, const StoredTensor& tensor) const;

 private:
  std::shared_ptr<CheckpointReader> reader_;
  std::shared_ptr<std::mutex> mutex_;
};

/// Fails, naming the first, where some values could not be read.
base::Result<void> all_readable(const StoredCheckpoint& checkpoint);

}  // namespace cohort::files
