/// Keeps in CPU memory what autograd saves, as torch.autograd.graph.save_on_cpu does.
///
///     at::Tensor loss;
///     {
///       const cohort::SaveOnCpu offload({.pin_memory = true});
///       loss = model(x).sum();
///     }
///     loss.backward();                // tensors come back to their devices one by one
///
/// What lies on the CPU already is kept as it is; with pin_memory it is copied, into pinned memory where there is an accelerator.
/// Thread-safety: see saved_tensor_hooks.h.
#pragma once

#include "cohort/export.h"
#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort {

struct SaveOnCpuOptions {
  /// Copies in both directions do not wait. Whoever reads a saved tensor in between waits for its stream himself.
  bool pin_memory = false;
};

class COHORT_API SaveOnCpu {
 public:
  explicit SaveOnCpu(const SaveOnCpuOptions& options = {});

 private:
  SavedTensorHooks hooks_;
};

}  // namespace cohort
