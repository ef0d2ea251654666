/// Reduction kernels: loops over elements for each instruction set, chosen at run time, bitwise equal to the scalar ones.
///
/// A kernel combines the same range of every rank's tensor, in the order of ranks:
///
///     out[i] = ((in[0][i] op in[1][i]) op in[2][i]) ...
///
/// An element's result only depends on its inputs, not on the count, its position in the range, or alignment.
/// float16 and bfloat16 are combined in float32 and rounded once, at the end, to nearest even.
/// SUM, AVG, PRODUCT, PREMUL_SUM of floats: a NaN in the result is always the positive quiet NaN without payload (0x7fc00000;
/// 0x7e00, 0x7fc0), because the compiler decides which of two NaNs an addition returns.
/// MIN and MAX follow std::min and std::max: `b < a ? b : a`, `a < b ? b : a`. They return one input with its bits. So a NaN in
/// in[0] stays, and NaNs in other inputs are ignored.
/// SUM and PRODUCT of integers wrap around. bool: SUM, MAX and BOR are "or", PRODUCT, MIN and BAND "and".
/// AVG: floats multiply each term by 1/num_inputs (rounded to the dtype in which they are combined) before adding, without fused
/// multiply-add, as PyTorch's DDP does; integers are summed in 64 bits and divided toward zero (uint64: unsigned).
/// PREMUL_SUM: each term is multiplied by its factor in the same way; for integers the factor is truncated to an int64 (NaN
/// becomes 0; factors beyond int64 become its limits), and products and sum wrap around.
#pragma once

#include <cstddef>

#include "cohort/shm/kernels/instruction_set.h"
#include "cohort/shm/terms/types.h"

namespace cohort::shm {

/// `out` may be one of `inputs` (the same address); other overlaps are not allowed. Pointers must be aligned to the element's
/// size. `factors` has one per input for kPremulSum, else it is ignored. Requires 1 <= num_inputs <= kMaxInputs.
using ReduceKernel = void (*)(void* out, const void* const* inputs, const double* factors, int num_inputs,
                              size_t count);
/// Averages of up to 32 bits are summed in float64, which is exact up to this number.
constexpr int kMaxInputs = 1 << 20;

/// Returns a kernel. Requires can_reduce(dtype, op) and is_available(set).
ReduceKernel reduce_kernel(DType dtype, ReduceOp op, InstructionSet set);
/// Returns the kernel for best_instruction_set() from a table, in a few nanoseconds.
ReduceKernel reduce_kernel(DType dtype, ReduceOp op);

}  // namespace cohort::shm
