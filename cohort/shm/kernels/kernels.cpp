#include "cohort/shm/kernels/kernels.h"

#include "cohort/shm/kernels/table.h"

namespace cohort::shm {
namespace {

const KernelTable& table_of(InstructionSet set) {
  switch (set) {
#if defined(COHORT_SHM_NEON_KERNELS)
    case InstructionSet::kNeon:
      return kNeonKernels;
#endif
#if defined(COHORT_SHM_X86_KERNELS)
    case InstructionSet::kAvx2:
      return kAvx2Kernels;
    case InstructionSet::kAvx512:
      return kAvx512Kernels;
    case InstructionSet::kAvx512Bf16:
      return kAvx512Bf16Kernels;
#endif
    default:
      return kScalarKernels;
  }
}

}  // namespace

ReduceKernel reduce_kernel(DType dtype, ReduceOp op, InstructionSet set) {
  return table_of(set).kernels[static_cast<int>(dtype)][static_cast<int>(op)];
}

ReduceKernel reduce_kernel(DType dtype, ReduceOp op) {
  static const KernelTable& best = table_of(best_instruction_set());
  return best.kernels[static_cast<int>(dtype)][static_cast<int>(op)];
}

}  // namespace cohort::shm
