/// Trace: what a rank did last and does now, written to shared memory so that the other ranks of the host can read it, even
/// when this one hangs or is gone. report/read_trace.h reads it.
///
/// Always on, so it must cost next to nothing: an operation is two looks at the clock and two cache lines. The last 512
/// collectives and the last 512 sends and receives stay. The numbers of a record are those of PyTorch's flight recorder
/// (FlightRecorder.hpp): collectives count from 1, sends and receives count from 1.
///
/// TORCH_FR_BUFFER_SIZE=0 switches it off: operations are counted, but not recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cohort/shm/terms/types.h"

namespace cohort::shm {

class CallSites;
struct TraceArea;

/// One operation, as PyTorch's flight recorder has it.
struct TraceRecord {
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool is_point_to_point = false;
  int32_t root = -1;  ///< or the peer of a send or receive; -1: none
  int32_t tag = 0;
  uint64_t num_inputs = 0;   ///< elements
  uint64_t num_outputs = 0;  ///< elements
  int64_t timeout_ms = 0;    ///< 0: unknown
  /// A return address in the program. The first use of an address costs a symbol lookup, later ones some nanoseconds.
  const void* call_site = nullptr;
};

class Trace {
 public:
  /// Bytes of one rank's area, zeroed at first. A multiple of 4 KiB.
  static size_t area_bytes();

  /// The writer's side: this rank's, aligned to 64 bytes. The area must outlive the Trace.
  explicit Trace(std::byte* own_area);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Each may be called from any thread, and a record may go from thread to thread. Returns: the record's id, never 0.
  uint64_t schedule(const TraceRecord& record);
  /// schedule() and start() with one look at the clock, for operations that run at once.
  uint64_t begin(const TraceRecord& record);
  /// Unknown ids, and records that others have replaced, are ignored. complete() and fail(): the first of them counts.
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
