/// UnshardedStorage: the memory of a whole parameter, which comes and goes while the tensor keeps its identity. Everything that
/// has the tensor's storage, as views and what autograd has saved do, sees the new memory.
///
/// While it is gone, whoever touches the tensor's data gets a c10::Error with a text of ours; from LibTorch 2.12 on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace cohort::fsdp {

class UnshardedStorage {
 public:
  /// Of a tensor that has a storage of its own. Its memory is there to begin with. `message`: what the error says.
  UnshardedStorage(const at::Tensor& tensor, std::string message);

  bool is_there() const { return is_there_; }
  /// Memory of its device's current stream, its content undefined. Nothing where it is there already.
  void allocate();
  /// Lets it go. On an accelerator, what the current stream does with it must have been called.
  void release();

 private:
  c10::Storage storage_;
  std::string message_;
  size_t num_bytes_;
  bool is_there_ = true;
};

}  // namespace cohort::fsdp
