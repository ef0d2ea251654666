/// Reduction kernels: loops over elements, one set per instruction set, chosen at run time, bit-identical to the scalar ones.
///
/// A kernel combines the same range of every rank's tensor, in rank order:
///
///     out[i] = ((in[0][i] op in[1][i]) op in[2][i]) ...
///
/// An element's result depends on nothing but its inputs: not on count, place in the range or alignment.
/// float16 and bfloat16 are combined in float32 and rounded once, at the end, to nearest even.
/// SUM, AVG, PRODUCT, PREMUL_SUM of floats: a NaN in the result is always the positive quiet NaN without payload (0x7fc00000;
/// 0x7e00, 0x7fc0), because which of two NaNs an addition returns is up to the compiler.
/// MIN and MAX follow std::min and std::max: `b < a ? b : a`, `a < b ? b : a`. They pick one input and keep its bits; so a NaN
/// stays if in[0] has it, and is passed over elsewhere.
/// SUM and PRODUCT of integers wrap around. bool: SUM, MAX and BOR are "or", PRODUCT, MIN and BAND "and".
/// AVG: floats multiply each term by 1/num_inputs (rounded to the dtype in which they are combined) before adding, without
/// fused multiply-add, as PyTorch's DDP does; integers are summed in 64 bits and divided toward zero (uint64: unsigned).
/// PREMUL_SUM: each term times its factor, likewise; integers: the factor is truncated to an int64 (NaN: 0; what lies beyond
/// int64 becomes its nearest end), and products and sum wrap around.
#pragma once

#include <cstddef>

#include "cohort/shm/kernels/instruction_set.h"
#include "cohort/shm/terms/types.h"

namespace cohort::shm {

/// `out` may be one of `inputs` (the same address), no other overlap. Pointers are aligned to the element's size.
/// `factors`: one per input for kPremulSum, else ignored. Requires 1 <= num_inputs <= kMaxInputs.
using ReduceKernel = void (*)(void* out, const void* const* inputs, const double* factors, int num_inputs,
                              size_t count);
/// Averages of up to 32 bits are summed in float64, which stays exact up to here.
constexpr int kMaxInputs = 1 << 20;

/// Requires can_reduce(dtype, op) and is_available(set).
ReduceKernel reduce_kernel(DType dtype, ReduceOp op, InstructionSet set);
/// The same for best_instruction_set(), looked up in a table: a few nanoseconds.
ReduceKernel reduce_kernel(DType dtype, ReduceOp op);

}  // namespace cohort::shm
