/// UnshardedStorage: the memory of a full parameter, which is allocated and freed while the tensor keeps its identity. Everything
/// that has the tensor's storage, such as views and tensors that autograd has saved, sees the new memory.
///
/// While the memory is freed, access to the tensor's data throws a c10::Error with a text of ours; from LibTorch 2.12 on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace cohort::fsdp {

class UnshardedStorage {
 public:
  /// For a tensor that has a storage of its own, with memory. `message`: the text of the error.
  UnshardedStorage(const at::Tensor& tensor, std::string message);

  bool is_there() const { return is_there_; }
  /// Allocates memory in its device's current stream, uninitialized. No effect if it has memory.
  void allocate();
  /// Frees it. On an accelerator the current stream's work with it must have been queued.
  void release();

 private:
  c10::Storage storage_;
  std::string message_;
  size_t num_bytes_;
  bool is_there_ = true;
};

}  // namespace cohort::fsdp
