/// Trace: a record of what a rank did last and does now, in shared memory, so that the other ranks of the host can read it even
/// if this one hangs or has ended. report/read_trace.h reads it.
///
/// It is always on and must cost very little: an operation takes two readings of the clock and two cache lines. It keeps the last
/// 512 collectives and the last 512 sends and receives. The numbers of a record are those of PyTorch's flight recorder
/// (FlightRecorder.hpp): collectives count from 1, sends and receives count from 1.
///
/// TORCH_FR_BUFFER_SIZE=0 disables it: operations are counted, but not recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cohort/shm/terms/types.h"

namespace cohort::shm {

class CallSites;
struct TraceArea;

/// One operation, with the fields of PyTorch's flight recorder.
struct TraceRecord {
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool is_point_to_point = false;
  int32_t root = -1;  ///< or the peer of a send or receive; -1 if there is none
  int32_t tag = 0;
  uint64_t num_inputs = 0;   ///< elements
  uint64_t num_outputs = 0;  ///< elements
  int64_t timeout_ms = 0;    ///< 0 means unknown
  /// A return address in the program. The first use of an address costs a symbol lookup, later ones some nanoseconds.
  const void* call_site = nullptr;
};

class Trace {
 public:
  /// The size of one rank's area, which must be zeroed at first. A multiple of 4 KiB.
  static size_t area_bytes();

  /// Writes this rank's area, which must be aligned to 64 bytes and outlive the Trace.
  explicit Trace(std::byte* own_area);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// These functions may be called from any thread, and several threads may use one record. Returns the record's id, never 0.
  uint64_t schedule(const TraceRecord& record);
  /// schedule() and start() with one reading of the clock, for operations that run at once.
  uint64_t begin(const TraceRecord& record);
  /// These functions ignore unknown ids, and records that others have replaced. Of complete() and fail() the first call counts.
  void start(uint64_t id);
  void complete(uint64_t id);
  void fail(uint64_t id);

 private:
  uint64_t write(const TraceRecord& record, bool has_started);
  void finish(uint64_t id, bool has_failed);

  TraceArea& area_;
  const bool is_on_;
  std::unique_ptr<CallSites> call_sites_;
};

}  // namespace cohort::shm
