/// The kernels of each instruction set, one source for each, compiled with that set's flags.
///
/// Such a source must not define anything that another one may also define (inline functions, templates of the standard library):
/// the linker keeps one copy, and this machine might not be able to run it. So everything in their shared headers is in anonymous
/// namespaces; tests/shm/check_kernel_symbols.cmake checks the objects.
#pragma once

#include "cohort/shm/kernels/kernels.h"

namespace cohort::shm {

struct KernelTable {
  /// nullptr if can_reduce() returns false.
  ReduceKernel kernels[kNumDTypes][kNumReduceOps];
};

extern const KernelTable kScalarKernels;
extern const KernelTable kNeonKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace cohort::shm
