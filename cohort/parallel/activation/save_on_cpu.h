/// Keeps autograd's saved tensors in CPU memory, as torch.autograd.graph.save_on_cpu does.
///
///     at::Tensor loss;
///     {
///       const cohort::SaveOnCpu offload({.pin_memory = true});
///       loss = model(x).sum();
///     }
///     loss.backward();                // tensors come back to their devices one by one
///
/// Tensors that are already on the CPU stay as they are; with pin_memory they are copied, into pinned memory if there is an
/// accelerator.
/// Thread-safety: see saved_tensor_hooks.h.
#pragma once

#include "cohort/export.h"
#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort {

struct SaveOnCpuOptions {
  /// Makes copies in both directions asynchronous. Code that reads a saved tensor in between must wait for its stream itself.
  bool pin_memory = false;
};

class COHORT_API SaveOnCpu {
 public:
  explicit SaveOnCpu(const SaveOnCpuOptions& options = {});

 private:
  SavedTensorHooks hooks_;
};

}  // namespace cohort
