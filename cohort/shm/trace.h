/// Trace: what a rank did last and does now, written to shared memory so that the other ranks of the host can read it, even
/// when this one hangs or is gone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/shm/types.h"

namespace cohort::shm {

/// One operation, as PyTorch's flight recorder has it.
struct TraceRecord {
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool is_point_to_point = false;
  int32_t root = -1;           ///< or the peer of a send or receive; -1: none
  int32_t tag = 0;
  uint64_t num_inputs = 0;     ///< elements
  uint64_t num_outputs = 0;    ///< elements
  int64_t timeout_ms = 0;
  const void* call_site = nullptr;
};

class Trace {
 public:
  /// Bytes of one rank's area, zeroed at first.
  static size_t area_bytes();

  /// The writer's side: this rank's. Any thread may call these.
  explicit Trace(std::byte* own_area);
  /// Returns the record's number, from 1.
  uint64_t schedule(const TraceRecord& record);
  void start(uint64_t id);
  void complete(uint64_t id);
  void fail(uint64_t id);

 private:
  std::byte* area_;
};

}  // namespace cohort::shm
