#include "cohort/shm/terms/types.h"

namespace cohort::shm {

const char* name_of(DType dtype) {
  constexpr const char* kNames[kNumDTypes] = {"bytes",  "bool",  "int8",   "uint8",   "int16",    "uint16",  "int32",
                                              "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"};
  const auto index = static_cast<int>(dtype);
  return index < kNumDTypes ? kNames[index] : "an unknown dtype";
}

const char* name_of(ReduceOp op) {
  constexpr const char* kNames[kNumReduceOps] = {"",    "SUM",  "AVG", "PRODUCT", "MIN",
                                                 "MAX", "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  const auto index = static_cast<int>(op);
  return index < kNumReduceOps ? kNames[index] : "an unknown ReduceOp";
}

const char* name_of(OpKind kind) {
  constexpr const char* kNames[kNumOpKinds] = {"nothing",    "barrier", "all_reduce", "broadcast",      "reduce",
                                               "all_gather", "gather",  "scatter",    "reduce_scatter", "all_to_all",
                                               "send",       "recv",    "shm_empty"};
  const auto index = static_cast<int>(kind);
  return index < kNumOpKinds ? kNames[index] : "an unknown operation";
}

bool can_reduce(DType dtype, ReduceOp op) {
  if (dtype == DType::kBytes || op == ReduceOp::kNone) return false;
  const bool is_bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
  if (is_float(dtype)) return !is_bitwise;
  return dtype != DType::kBool || (op != ReduceOp::kAvg && op != ReduceOp::kPremulSum);
}

}  // namespace cohort::shm
