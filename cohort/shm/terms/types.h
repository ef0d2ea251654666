/// The terms of the shared-memory engine: dtypes, reductions, operations. Bytes and enums only, no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::shm {

/// The element types of reductions. Complex numbers are pairs of their real type; other 1-byte types are kBytes.
enum class DType : uint8_t {
  kBytes,  ///< copied, never reduced
  kBool,   ///< one byte, 0 or 1
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};
constexpr int kNumDTypes = 14;

enum class ReduceOp : uint8_t { kNone, kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, kPremulSum };
constexpr int kNumReduceOps = 10;

/// In the order of PyTorch's Backend. Ranks compare these numbers.
enum class OpKind : uint8_t {
  kNone,
  kBarrier,
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
  kAllocate,  ///< for shm_empty
};
constexpr int kNumOpKinds = 13;

constexpr size_t size_of(DType dtype) {
  constexpr uint8_t kSizes[kNumDTypes] = {1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}
constexpr bool is_float(DType dtype) { return dtype >= DType::kFloat16; }

/// Returns PyTorch's names: "float32", "uint8".
const char* name_of(DType dtype);
/// Returns "SUM"; "" for kNone.
const char* name_of(ReduceOp op);
/// Returns "all_reduce".
const char* name_of(OpKind kind);

/// Returns false for bitwise operations on floats, averages of bools, and arithmetic on bytes.
bool can_reduce(DType dtype, ReduceOp op);

}  // namespace cohort::shm
