/// The kernel of every operator that has none of its own: LibTorch's CPU kernel, queued in the current stream.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <set>
#include <string>
#include <vector>

namespace cohort::sim {

/// Takes the arguments from the stack and leaves the results. Throws c10::Error at once for tensors of two devices; what the CPU
/// kernel throws shows at the next synchronization.
void run_cpu_kernel(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

/// For every operator of ATen that has a CPU kernel. Where LibTorch has a composition of other operators for devices without a
/// kernel, it rounds in another way than the CPU's kernel.
void register_fallback();

}  // namespace cohort::sim
