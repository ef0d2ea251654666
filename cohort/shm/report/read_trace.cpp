#include "cohort/shm/report/read_trace.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "cohort/shm/trace/trace_area.h"

namespace cohort::shm {
namespace {

constexpr int kMaxAttempts = 100;

int64_t read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

struct PlainWords {
  uint64_t number, created_ns, started, finished, num_others, num_inputs, num_outputs, timeout_ms, what, root_and_tag,
      thread_id;
};

/// Returns nothing if there is no record, or it is being written (for ever, if its writer has died).
std::optional<PlainWords> read_words(const TraceWords& words) {
  constexpr auto kAcquire = std::memory_order_acquire;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const uint64_t version = words.version.load(kAcquire);
    if (version == 0) return std::nullopt;
    if ((version & 1) != 0) continue;
    const PlainWords plain{.number = version / 2,
                           .created_ns = words.created_ns.load(kAcquire),
                           .started = words.started.load(kAcquire),
                           .finished = words.finished.load(kAcquire),
                           .num_others = words.num_others.load(kAcquire),
                           .num_inputs = words.num_inputs.load(kAcquire),
                           .num_outputs = words.num_outputs.load(kAcquire),
                           .timeout_ms = words.timeout_ms.load(kAcquire),
                           .what = words.what.load(kAcquire),
                           .root_and_tag = words.root_and_tag.load(kAcquire),
                           .thread_id = words.thread_id.load(kAcquire)};
    if (words.version.load(std::memory_order_relaxed) == version) return plain;
  }
  return std::nullopt;
}

std::string call_site_text(const TraceArea& area, uint64_t index) {
  if (index == 0) return "";
  const uint32_t count = std::min<uint32_t>(area.num_call_sites.load(std::memory_order_acquire), kCallSiteTexts);
  if (index > count) return "(one of many call sites)";
  const auto& text = area.call_sites[index - 1];
  return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

/// Replaces values outside of the enum: shared memory may have any content after a process has misbehaved.
template <class Enum>
Enum checked(uint64_t byte, int count) {
  return static_cast<Enum>(byte < static_cast<uint64_t>(count) ? byte : 0);
}

CallRecord to_record(const TraceArea& area, const PlainWords& words, bool is_p2p, int64_t clock_offset_ns) {
  CallRecord record;
  record.collective_seq_id = is_p2p ? words.num_others : words.number;
  record.p2p_seq_id = is_p2p ? words.number : words.num_others;
  record.kind = checked<OpKind>(words.what & 0xff, kNumOpKinds);
  record.dtype = checked<DType>(words.what >> 8 & 0xff, kNumDTypes);
  record.reduce_op = checked<ReduceOp>(words.what >> 16 & 0xff, kNumReduceOps);
  record.is_p2p = is_p2p;
  record.root = static_cast<int32_t>(words.root_and_tag);
  record.tag = static_cast<int32_t>(words.root_and_tag >> 32);
  record.num_inputs = words.num_inputs;
  record.num_outputs = words.num_outputs;
  record.timeout_ms = static_cast<int64_t>(words.timeout_ms);
  record.created_ns = static_cast<int64_t>(words.created_ns) + clock_offset_ns;
  record.thread_id = static_cast<int>(words.thread_id);
  record.call_site = call_site_text(area, words.what >> 24 & 0xff);
  const auto time_of = [&](uint64_t mark) {
    return record.created_ns + static_cast<int64_t>(TimeMark::nanoseconds(mark));
  };
  if (TimeMark::belongs_to(words.started, words.number)) {
    record.started_ns = time_of(words.started);
    record.state = CallRecord::State::kStarted;
  }
  if (TimeMark::belongs_to(words.finished, words.number)) {
    record.finished_ns = time_of(words.finished);
    const bool has_failed = TimeMark::has_failed(words.finished);
    record.state = has_failed ? CallRecord::State::kFailed : CallRecord::State::kCompleted;
  }
  return record;
}

/// Returns the records in the order of their numbers.
std::vector<CallRecord> read_ring(const TraceArea& area, bool is_p2p, int64_t clock_offset_ns) {
  std::vector<CallRecord> records;
  for (const TraceWords& words : (is_p2p ? area.point_to_point : area.collectives).records) {
    if (const auto plain = read_words(words)) records.push_back(to_record(area, *plain, is_p2p, clock_offset_ns));
  }
  std::sort(records.begin(), records.end(),
            [](const CallRecord& a, const CallRecord& b) { return a.seq_id() < b.seq_id(); });
  return records;
}

}  // namespace

int64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }

int64_t wall_clock_offset_ns() {
  // This thread may lose the core between the two readings, so it keeps the closest of several tries.
  int64_t smallest_gap = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const int64_t before = read_clock(CLOCK_MONOTONIC);
    const int64_t wall = read_clock(CLOCK_REALTIME);
    const int64_t after = read_clock(CLOCK_MONOTONIC);
    if (after - before >= smallest_gap) continue;
    smallest_gap = after - before;
    offset = wall - before - (after - before) / 2;
  }
  return offset;
}

std::vector<CallRecord> read_records(const std::byte* bytes, int64_t clock_offset_ns) {
  const auto& area = *reinterpret_cast<const TraceArea*>(bytes);
  const std::vector<CallRecord> collectives = read_ring(area, false, clock_offset_ns);
  const std::vector<CallRecord> point_to_point = read_ring(area, true, clock_offset_ns);
  // The numbers before the first record of each ring.
  uint64_t num_collectives = collectives.empty() ? 0 : collectives.front().seq_id() - 1;
  uint64_t num_p2p = point_to_point.empty() ? 0 : point_to_point.front().seq_id() - 1;
  std::vector<CallRecord> records;
  for (auto left = collectives.begin(), right = point_to_point.begin();
       left != collectives.end() || right != point_to_point.end();) {
    const bool takes_left =
        right == point_to_point.end() || (left != collectives.end() && left->created_ns <= right->created_ns);
    records.push_back(takes_left ? *left++ : *right++);
    (takes_left ? num_collectives : num_p2p) = records.back().seq_id();
    records.back().record_id = num_collectives + num_p2p;
  }
  return records;
}

}  // namespace cohort::shm
