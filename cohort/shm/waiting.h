/// Waiting for other ranks: a counter in shared memory, and how long to spin before sleeping.
///
/// One rank raises a counter, others wait until it has reached a value: they spin for a while, then yield, then sleep in the
/// kernel (futex) in slices, and look after their peers between two slices.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "cohort/shm/failure.h"

namespace cohort::shm {

/// Lives in shared memory, zero at first. Raised by one rank, waited for by any number.
struct Counter {
  std::atomic<uint64_t> value;
  /// Who sleeps on `value`. Partner of `value`: the raiser stores the value, then reads this; a sleeper does both the other
  /// way round. All four accesses are sequentially consistent, so one of the two sees the other.
  std::atomic<uint32_t> num_sleepers;
  /// The core on which the raiser ran last, plus one. A hint: who waits on that very core had better make room.
  std::atomic<uint32_t> core;

  /// Everything written before is seen by those who see `new_value`.
  void raise(uint64_t new_value);
  bool has_reached(uint64_t target) const { return value.load(std::memory_order_acquire) >= target; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// How long to spin and yield before sleeping. A yield on an idle core returns at once, so it is a slower kind of spinning
/// that costs nobody anything; a pause keeps the core.
struct Patience {
  int num_pauses = 50;
  /// By time, not by number: on a busy host one yield can take many milliseconds.
  std::chrono::microseconds yield_time{500};
  /// Before it yields: how long it looks without letting go of its core, unless the rank that is waited for was there last. On a
  /// busy machine what a yield lets in may stay for milliseconds.
  std::chrono::microseconds keep_time{0};
  /// For ranks that share cores: long spins would take the time of the rank that is waited for.
  static Patience shared_cores() { return {}; }
  /// For ranks of which each has a core to itself.
  static Patience own_core() { return {200, std::chrono::microseconds(500)}; }
};

/// Called between two slices of sleep, about every 50 ms. A failure ends the wait.
class Lookout {
 public:
  virtual ~Lookout() = default;
  virtual Outcome look() = 0;
};

/// Blocks until `counter` has reached `target`, or the lookout finds a failure.
Outcome wait_for(Counter& counter, uint64_t target, const Patience& patience, Lookout& lookout);

/// Between two looks at `counter`: as Patience::keep_time says if `keeps_core`, else a yield.
void linger(const Counter& counter, bool keeps_core);

/// A pause in a spinning loop.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace cohort::shm
