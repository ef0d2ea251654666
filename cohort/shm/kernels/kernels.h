/// Reduction kernels: loops over elements, one set per instruction set, chosen at run time, bit-identical to the scalar ones.
///
/// A kernel combines the same range of every rank's tensor, in rank order:
///
///     out[i] = ((in[0][i] op in[1][i]) op in[2][i]) ...
///
/// float16 and bfloat16 are combined in float32 and rounded once, at the end, to nearest even; a NaN becomes the quiet NaN
/// that LibTorch's conversions give. MIN and MAX follow std::min and std::max: `b < a ? b : a`, `a < b ? b : a`.
/// SUM and PRODUCT of integers wrap around. bool: SUM, MAX and BOR are "or", PRODUCT, MIN and BAND "and".
/// AVG: floats multiply each term by 1/num_inputs (rounded to the dtype in which they are combined) before adding, without
/// fused multiply-add, as PyTorch's DDP does; integers are summed in 64 bits and divided toward zero (uint64: unsigned).
/// PREMUL_SUM: each term times its factor, likewise; integers: the factor is truncated to an integer.
#pragma once

#include <cstddef>

#include "cohort/shm/types.h"

namespace cohort::shm {

/// `out` may be one of `inputs` (the same address), no other overlap. Pointers are aligned to the element's size.
/// `factors`: one per input for kPremulSum, else ignored. Requires num_inputs >= 1.
using ReduceKernel = void (*)(void* out, const void* const* inputs, const double* factors, int num_inputs,
                              size_t count);

enum class InstructionSet { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16 };

/// The best that this machine has and that was compiled in; COHORT_SHM_INSTRUCTION_SET=scalar|neon|avx2|avx512|avx512-bf16
/// asks for a lesser one.
InstructionSet best_instruction_set();
const char* name_of(InstructionSet set);
/// True if this machine can run it.
bool is_available(InstructionSet set);

/// Requires can_reduce(dtype, op) and is_available(set).
ReduceKernel reduce_kernel(DType dtype, ReduceOp op, InstructionSet set);
/// The same for best_instruction_set(), looked up in a table: a few nanoseconds.
ReduceKernel reduce_kernel(DType dtype, ReduceOp op);

}  // namespace cohort::shm
