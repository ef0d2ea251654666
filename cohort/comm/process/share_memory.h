/// Tensors in memory that several processes use at once: ranks of spawn, which inherit it, and processes that are sent them
/// (tensor_channel.h). Follows Tensor.share_memory_() and Module.share_memory() of PyTorch.
///
/// The memory is anonymous (a memfd): it has no name in /dev/shm, does not count against its size, and goes with the last process
/// that holds it, also after kill -9. All that one call shares has one descriptor between it; PyTorch takes one per tensor.
/// LibTorch does not know this memory: its own share_memory_(), and torch.multiprocessing, would move a tensor elsewhere.
/// Nothing orders the accesses of different processes: use std::atomic_ref, or a collective, where order matters.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace torch::nn {
class Module;
}

namespace cohort {

/// Moves the tensors' storages to shared memory, in place: tensors and views that use them see no difference, but pointers into
/// the old memory (from_blob's, data_ptr's, arrays of numpy) no longer lead there. Takes one tensor too.
/// A storage that is shared already stays where it is; a shared one can no longer be resized.
/// Call it before spawn and while nobody else uses the tensors; it starts no threads.
/// Throws c10::ValueError for tensors that are not dense CPU tensors, c10::Error when there is no memory.
COHORT_API void share_memory(at::TensorList tensors);

/// The same for the parameters, their gradients, and the buffers of a module: share_memory(*model).
COHORT_API void share_memory(const torch::nn::Module& module);

/// True for tensors whose storage several processes can use: by share_memory, from a TensorChannel, by Tensor::share_memory_().
COHORT_API bool is_shared(const at::Tensor& tensor);

}  // namespace cohort
