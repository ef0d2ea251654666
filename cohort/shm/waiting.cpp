#include "cohort/shm/waiting.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace cohort::shm {
namespace {

constexpr long kSliceNanoseconds = 50'000'000;
// About half a microsecond.
constexpr int kPausesBetweenLooks = 10;

// The kernel compares 32 bits: the lower half of the value, which changes with every raise by less than 2^32.
uint32_t* futex_word(Counter& counter) {
  auto* const words = reinterpret_cast<uint32_t*>(&counter.value);
  return words + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 1 : 0);
}

// The memory is shared between processes, so not FUTEX_PRIVATE_FLAG.
void sleep_while(Counter& counter, uint64_t seen) {
  const timespec slice{0, kSliceNanoseconds};
  syscall(SYS_futex, futex_word(counter), FUTEX_WAIT, static_cast<uint32_t>(seen), &slice, nullptr, 0);
}

uint32_t this_core() { return static_cast<uint32_t>(sched_getcpu() + 1); }

}  // namespace

void linger(const Counter& counter, bool keeps_core) {
  if (!keeps_core || counter.core.load(std::memory_order_relaxed) == this_core()) {
    sched_yield();
    return;
  }
  for (int i = 0; i < kPausesBetweenLooks; ++i) pause();
}

namespace {

// Returns true once the counter has reached the target.
bool spin(const Counter& counter, uint64_t target, const Patience& patience) {
  const bool is_raiser_elsewhere = counter.core.load(std::memory_order_relaxed) != this_core();
  for (int i = 0; is_raiser_elsewhere && i < patience.num_pauses; ++i) {
    if (counter.has_reached(target)) return true;
    pause();
  }
  auto now = std::chrono::steady_clock::now();
  const auto kept_until = now + patience.keep_time;
  const auto end = kept_until + patience.yield_time;
  for (; now < end; now = std::chrono::steady_clock::now()) {
    if (counter.has_reached(target)) return true;
    linger(counter, now < kept_until);
  }
  return counter.has_reached(target);
}

}  // namespace

void Counter::raise(uint64_t new_value) {
  core.store(this_core(), std::memory_order_relaxed);
  value.store(new_value, std::memory_order_seq_cst);
  if (num_sleepers.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, futex_word(*this), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Outcome wait_for(Counter& counter, uint64_t target, const Patience& patience, Lookout& lookout) {
  if (spin(counter, target, patience)) return nullptr;
  while (true) {
    counter.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
    const auto seen = counter.value.load(std::memory_order_seq_cst);
    if (seen < target) sleep_while(counter, seen);
    counter.num_sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (counter.has_reached(target)) return nullptr;
    // A peer that raised the counter just before it ended has come: what has been reached counts more than a failure.
    if (auto failure = lookout.look()) return counter.has_reached(target) ? nullptr : failure;
  }
}

}  // namespace cohort::shm
