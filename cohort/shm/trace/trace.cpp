#include "cohort/shm/trace/trace.h"

#include <time.h>
#include <unistd.h>

#include "cohort/base/system/env.h"
#include "cohort/shm/trace/call_sites.h"
#include "cohort/shm/trace/trace_area.h"

namespace cohort::shm {
namespace {

uint64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

uint64_t thread_id() {
  thread_local const auto id = static_cast<uint64_t>(::gettid());
  return id;
}

bool is_switched_on() {
  const auto size = base::env_int("TORCH_FR_BUFFER_SIZE");
  return !size || !*size || **size > 0;
}

// An id is the number within its ring, with the kind of ring in the lowest bit.
uint64_t make_id(uint64_t number, bool is_point_to_point) { return number << 1 | uint64_t{is_point_to_point}; }
uint64_t number_of(uint64_t id) { return id >> 1; }
TraceWords& words_of(TraceArea& area, uint64_t id) {
  return ((id & 1) != 0 ? area.point_to_point : area.collectives).at(number_of(id));
}

/// Takes the ring's next number and record. Skips a record that a thread still writes after 512 others were made.
uint64_t claim_next(TraceRing& ring) {
  // Several threads may begin with the same number, and num_records may be too small: the version decides who was first.
  for (uint64_t number = ring.num_records.load(std::memory_order_relaxed) + 1;; ++number) {
    std::atomic<uint64_t>& version = ring.at(number).version;
    uint64_t found = version.load(std::memory_order_relaxed);
    if ((found & 1) != 0 || found >= 2 * number) continue;
    // Acquire: the last writer's words come before this writer's. The claim itself reaches readers with the first word they see.
    if (!version.compare_exchange_strong(found, 2 * number + 1, std::memory_order_acq_rel)) continue;
    ring.num_records.store(number, std::memory_order_relaxed);
    return number;
  }
}

uint64_t pack(const TraceRecord& record, uint8_t call_site) {
  return static_cast<uint64_t>(record.kind) | static_cast<uint64_t>(record.dtype) << 8 |
         static_cast<uint64_t>(record.reduce_op) << 16 | uint64_t{call_site} << 24;
}

}  // namespace

size_t Trace::area_bytes() { return (sizeof(TraceArea) + 4095) / 4096 * 4096; }

Trace::Trace(std::byte* own_area)
    : area_(*reinterpret_cast<TraceArea*>(own_area)),
      is_on_(is_switched_on()),
      call_sites_(std::make_unique<CallSites>(area_)) {}

Trace::~Trace() = default;

uint64_t Trace::schedule(const TraceRecord& record) { return write(record, false); }

uint64_t Trace::begin(const TraceRecord& record) { return write(record, true); }

// See [Note: reading while others write].
uint64_t Trace::write(const TraceRecord& record, bool has_started) {
  TraceRing& ring = record.is_point_to_point ? area_.point_to_point : area_.collectives;
  const TraceRing& other = record.is_point_to_point ? area_.collectives : area_.point_to_point;
  if (!is_on_) {
    return make_id(ring.num_records.fetch_add(1, std::memory_order_relaxed) + 1, record.is_point_to_point);
  }
  const uint8_t call_site = call_sites_->index_of(record.call_site);
  const uint64_t number = claim_next(ring);
  TraceWords& words = ring.at(number);
  constexpr auto kRelease = std::memory_order_release;
  words.created_ns.store(now_ns(), kRelease);
  words.started.store(has_started ? TimeMark::make(number, 0, false) : 0, kRelease);
  words.finished.store(0, kRelease);
  words.num_others.store(other.num_records.load(std::memory_order_relaxed), kRelease);
  words.num_inputs.store(record.num_inputs, kRelease);
  words.num_outputs.store(record.num_outputs, kRelease);
  words.timeout_ms.store(static_cast<uint64_t>(record.timeout_ms), kRelease);
  words.what.store(pack(record, call_site), kRelease);
  words.root_and_tag.store(static_cast<uint32_t>(record.root) | uint64_t{static_cast<uint32_t>(record.tag)} << 32,
                           kRelease);
  words.thread_id.store(thread_id(), kRelease);
  words.version.store(2 * number, kRelease);
  return make_id(number, record.is_point_to_point);
}

void Trace::start(uint64_t id) {
  TraceWords& words = words_of(area_, id);
  if (words.version.load(std::memory_order_relaxed) != 2 * number_of(id)) return;
  const uint64_t elapsed = now_ns() - words.created_ns.load(std::memory_order_relaxed);
  words.started.store(TimeMark::make(number_of(id), elapsed, false), std::memory_order_release);
}

void Trace::complete(uint64_t id) { finish(id, false); }

void Trace::fail(uint64_t id) { finish(id, true); }

// A thread that sleeps before the store while 512 others are made leaves its mark on a younger record, which then looks
// unfinished: readers see that the mark belongs to another record. This is too rare to justify the cost of excluding it.
void Trace::finish(uint64_t id, bool has_failed) {
  TraceWords& words = words_of(area_, id);
  if (words.version.load(std::memory_order_relaxed) != 2 * number_of(id)) return;
  if (TimeMark::belongs_to(words.finished.load(std::memory_order_relaxed), number_of(id))) return;
  const uint64_t elapsed = now_ns() - words.created_ns.load(std::memory_order_relaxed);
  words.finished.store(TimeMark::make(number_of(id), elapsed, has_failed), std::memory_order_release);
}

}  // namespace cohort::shm
