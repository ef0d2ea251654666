/// Tensors in memory that several processes use at once: ranks of spawn, which inherit it, and processes that receive the tensors
/// (tensor_channel.h). Follows Tensor.share_memory_() and Module.share_memory() of PyTorch.
///
/// The memory is anonymous (a memfd): it has no name in /dev/shm, does not count against its size, and is freed with the last
/// process that holds it, also after kill -9. All tensors of one call use one descriptor; PyTorch uses one per tensor.
/// LibTorch does not know this memory: its own share_memory_(), and torch.multiprocessing, would move a tensor elsewhere.
/// Accesses of different processes are not ordered: use std::atomic_ref or a collective if order matters.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace torch::nn {
class Module;
}

namespace cohort {

/// Moves the tensors' storages to shared memory, in place: tensors and views that use them see no difference, but pointers into
/// the old memory (from from_blob, data_ptr, numpy arrays) no longer point to the tensors. Also takes one tensor.
/// A storage that is already shared is not moved. A shared storage cannot be resized.
/// Call it before spawn and while nobody else uses the tensors; it starts no threads.
/// Throws c10::ValueError for tensors that are not dense CPU tensors, c10::Error if there is not enough memory.
COHORT_API void share_memory(at::TensorList tensors);

/// Shares the parameters, their gradients, and the buffers of a module: share_memory(*model).
COHORT_API void share_memory(const torch::nn::Module& module);

/// Whether several processes can use the tensor's storage: after share_memory, from a TensorChannel, by Tensor::share_memory_().
COHORT_API bool is_shared(const at::Tensor& tensor);

}  // namespace cohort
