#include "cohort/shm/transfer/waiting.h"

#include <sched.h>

#include <algorithm>
#include <span>

namespace cohort::shm {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(50);
// About half a microsecond.
constexpr int kPausesBetweenLooks = 10;

uint32_t this_core() { return static_cast<uint32_t>(sched_getcpu() + 1); }

bool was_on(const Counter& counter, uint32_t core) { return counter.core.load(std::memory_order_relaxed) == core; }

// The counters that have not reached the target, as far as they have been read.
class Missing {
 public:
  Missing(std::span<Counter* const> whom, uint64_t target) : next_(whom.begin()), end_(whom.end()), target_(target) {}

  bool has_none() {
    while (next_ != end_ && (*next_)->has_reached(target_)) ++next_;
    return next_ == end_;
  }
  // Whether one of the missing ranks probably waits for this thread's core.
  bool wants_core() const {
    const auto core = this_core();
    return std::any_of(
        next_, end_, [&](const Counter* counter) { return was_on(*counter, core) && !counter->has_reached(target_); });
  }

 private:
  std::span<Counter* const>::iterator next_;
  const std::span<Counter* const>::iterator end_;
  const uint64_t target_;
};

// Returns true once no rank is missing.
bool spin(Missing& missing, const Patience& patience) {
  const int num_pauses = missing.wants_core() ? 0 : patience.num_pauses;
  for (int i = 0; i < num_pauses; ++i) {
    if (missing.has_none()) return true;
    pause();
  }
  auto now = std::chrono::steady_clock::now();
  const auto kept_until = now + patience.keep_time;
  const auto end = kept_until + patience.yield_time;
  int idle_yields_left = patience.num_idle_yields;
  while (now < end && idle_yields_left > 0) {
    const auto before = now;
    if (before >= kept_until || missing.wants_core()) {
      sched_yield();
      if (missing.has_none()) return true;
      now = std::chrono::steady_clock::now();
      if (now - before < patience.least_turn) --idle_yields_left;
      continue;
    }
    now = std::chrono::steady_clock::now();
    for (int i = 0; i < kPausesBetweenLooks; ++i) {
      pause();
      if (missing.has_none()) return true;
    }
  }
  return false;
}

void raise_counter(Counter& counter, uint64_t target) {
  counter.core.store(this_core(), std::memory_order_relaxed);
  counter.value.store(target, std::memory_order_seq_cst);
}

Outcome wait_until_reached(std::span<Counter* const> whom, Bell& bell, uint64_t target, const Patience& patience,
                           Lookout& lookout) {
  Missing missing(whom, target);
  if (missing.has_none() || spin(missing, patience)) return nullptr;
  while (true) {
    const auto num_rings = bell.begin_sleep();
    if (!missing.has_none()) bell.sleep(num_rings, kSlice);
    bell.end_sleep();
    if (missing.has_none()) return nullptr;
    // A peer that increased its counter just before it ended has arrived: a reached target counts more than a failure.
    if (auto failure = lookout.look()) return missing.has_none() ? nullptr : failure;
  }
}

}  // namespace

void linger(const Counter& counter, bool keeps_core) {
  if (!keeps_core || was_on(counter, this_core())) {
    sched_yield();
    return;
  }
  for (int i = 0; i < kPausesBetweenLooks; ++i) pause();
}

bool Gathering::is_complete(uint64_t target) const {
  return std::all_of(others.begin(), others.end(),
                     [&](const Counter* counter) { return counter->has_reached(target); });
}

void Gathering::arrive(uint64_t target) const {
  raise_counter(*own, target);
  if (bell->has_sleepers() && is_complete(target)) bell->ring();
}

void Gathering::arrive_alone(uint64_t target) const {
  raise_counter(*own, target);
  bell->ring();
}

Outcome wait_for(const Gathering& gathering, uint64_t target, const Patience& patience, Lookout& lookout) {
  return wait_until_reached(gathering.others, *gathering.bell, target, patience, lookout);
}

Outcome wait_for_one(const Gathering& gathering, size_t index, uint64_t target, const Patience& patience,
                     Lookout& lookout) {
  return wait_until_reached(std::span(gathering.others).subspan(index, 1), *gathering.bell, target, patience, lookout);
}

}  // namespace cohort::shm
