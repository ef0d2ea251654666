/// The kernels of each instruction set, one source each, compiled with that set's flags.
///
/// Such a source must not define anything that another one may define as well (inline functions, templates of the standard
/// library): the linker keeps one copy, and it might be the one that this machine cannot run. So everything in the headers that
/// they share lives in anonymous namespaces; tests/shm/check_kernel_symbols.cmake looks at the objects.
#pragma once

#include "cohort/shm/kernels/kernels.h"

namespace cohort::shm {

struct KernelTable {
  /// nullptr where can_reduce() says no.
  ReduceKernel kernels[kNumDTypes][kNumReduceOps];
};

extern const KernelTable kScalarKernels;
extern const KernelTable kNeonKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;

}  // namespace cohort::shm
