/// The layout of a rank's trace in shared memory: two rings of records and the texts of call sites. For trace.cpp, which
/// writes it, and report/read_trace.cpp, which reads it from any process, at any time.
///
/// [Note: reading while others write]
/// A record is twelve words, all atomic. `version` is 2 * number + 1 while the record with that number is being written, and 2 *
/// number once it is complete; it only increases. A writer claims a record with compare-exchange, so that one thread writes at a
/// time, and stores the words with release; a reader loads version, the words with acquire, then version again. If any word came
/// from a later writer, reading it made that writer's claim visible, so the second version differs: equal and even versions mean
/// one record. A writer that dies in between leaves an odd version, and the reader skips that record.
///
/// `started` and `finished` come later, from other threads. Each is one word that says which record it belongs to (TimeMark), so
/// they need no claim: a thread so late that its record has been replaced writes a mark that no reader takes for the new record's
/// mark. It may overwrite the new record's own mark; that record then looks unfinished until it is replaced. This needs 512
/// operations between two instructions of that thread.
///
/// Words are in nanoseconds of CLOCK_MONOTONIC, which is one clock for all processes of a host.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort::shm {

constexpr size_t kTraceRing = 512;
constexpr size_t kCallSiteTexts = 127;
constexpr size_t kCallSiteBytes = 120;

struct TraceWords {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> created_ns;
  std::atomic<uint64_t> started;     ///< TimeMark
  std::atomic<uint64_t> finished;    ///< TimeMark
  std::atomic<uint64_t> num_others;  ///< the number of the other ring's records at that time
  std::atomic<uint64_t> num_inputs;
  std::atomic<uint64_t> num_outputs;
  std::atomic<uint64_t> timeout_ms;
  std::atomic<uint64_t> what;          ///< kind, dtype, reduction, index of the call site: a byte each, from the lowest
  std::atomic<uint64_t> root_and_tag;  ///< 32 bits each, root in the lower half
  std::atomic<uint64_t> thread_id;
  std::atomic<uint64_t> unused;
};
static_assert(sizeof(TraceWords) == 96 && std::atomic<uint64_t>::is_always_lock_free);

struct TraceRing {
  /// The number of records, or somewhat less while threads take numbers.
  alignas(64) std::atomic<uint64_t> num_records;
  alignas(64) std::array<TraceWords, kTraceRing> records;

  TraceWords& at(uint64_t number) { return records[number % kTraceRing]; }
  const TraceWords& at(uint64_t number) const { return records[number % kTraceRing]; }
};

struct TraceArea {
  TraceRing collectives;
  TraceRing point_to_point;
  /// Texts below this index are complete and constant. Written with release after the text. Paired with: readers.
  alignas(64) std::atomic<uint32_t> num_call_sites;
  /// Each ends with a zero. Records count them from 1; 0 means unknown, kManyCallSites a text for which there was no space.
  std::array<std::array<char, kCallSiteBytes>, kCallSiteTexts> call_sites;
};
constexpr uint8_t kManyCallSites = 255;

/// The time when a record was started or finished: a set bit, whether it failed, 14 bits that distinguish the ring's turns, and
/// 48 bits (78 hours) of nanoseconds since the record was made.
struct TimeMark {
  static constexpr uint64_t kMaxNanoseconds = (uint64_t{1} << 48) - 1;

  static uint64_t make(uint64_t number, uint64_t nanoseconds, bool has_failed) {
    return uint64_t{1} << 63 | uint64_t{has_failed} << 62 | turn_of(number) << 48 |
           (nanoseconds < kMaxNanoseconds ? nanoseconds : kMaxNanoseconds);
  }
  static bool belongs_to(uint64_t mark, uint64_t number) {
    return mark >> 63 == 1 && (mark >> 48 & 0x3fff) == turn_of(number);
  }
  static bool has_failed(uint64_t mark) { return (mark >> 62 & 1) == 1; }
  static uint64_t nanoseconds(uint64_t mark) { return mark & kMaxNanoseconds; }

 private:
  static uint64_t turn_of(uint64_t number) { return number / kTraceRing & 0x3fff; }
};

}  // namespace cohort::shm
