/// Waits for other ranks: counters in shared memory, and rules for spinning and sleeping.
///
/// Every rank increases its own counter and waits until all others, or one of them, have reached the same value. It spins for a
/// while, then yields, then sleeps in the kernel (futex) in slices, and checks its peers between two slices. The rank that
/// arrives last wakes sleepers; a rank that others wait for alone always does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cohort/shm/terms/failure.h"
#include "cohort/shm/transfer/bell.h"

namespace cohort::shm {

/// Lives in shared memory, zero at first. Increased by one rank, read by the others.
struct Counter {
  /// Sequentially consistent, as Bell requires for values that its sleepers check.
  std::atomic<uint64_t> value;
  /// The core on which it was last increased, plus one. A hint: a rank that waits on the same core should yield.
  std::atomic<uint32_t> core;
  /// A value sent with it: written before `value` is increased, read after it.
  uint32_t word;

  bool has_reached(uint64_t target) const { return value.load(std::memory_order_seq_cst) >= target; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// The counters of ranks that wait for each other, from one rank's view.
struct Gathering {
  Counter* own = nullptr;
  std::vector<Counter*> others = {};
  /// The bell of all of them.
  Bell* bell = nullptr;

  bool is_complete(uint64_t target) const;
  /// Increases the own counter. Ranks that see `target` also see everything written before. The last rank to arrive rings the
  /// bell.
  void arrive(uint64_t target) const;
  /// As arrive(), if others wait for this rank alone: always rings, and checks no other counters.
  void arrive_alone(uint64_t target) const;
};

/// The times for spinning and yielding before sleeping. A yield on an idle core returns at once, so it is a slower kind of
/// spinning that costs others nothing; a pause keeps the core.
struct Patience {
  int num_pauses = 50;
  /// Measured by time, not by number, because on a busy host one yield can take many milliseconds.
  std::chrono::microseconds yield_time{500};
  /// The time before it yields, in which it keeps its core, unless a missing rank ran there last. On a busy machine a thread that
  /// a yield lets in may run for milliseconds.
  std::chrono::microseconds keep_time{0};
  /// The number of yields that may return at once before it sleeps. They have let nobody in: if a launcher gives each rank its
  /// own session, the system may not let in other sessions (autogroup), and only sleeping gives the core to others.
  int num_idle_yields = std::numeric_limits<int>::max();
  /// A yield that takes less than this returned at once: no other thread's turn is so short.
  std::chrono::nanoseconds least_turn{1500};
  /// For ranks that share cores: long spins would take time from a rank that is waited for, unless it is on another core.
  static Patience shared_cores() { return {.num_pauses = 100, .num_idle_yields = 5}; }
  /// For ranks that each have a core to themselves.
  static Patience own_core() { return {.num_pauses = 200}; }
};

/// Called between two slices of sleep, about every 50 ms. A failure ends the wait.
class Lookout {
 public:
  virtual ~Lookout() = default;
  virtual Outcome look() = 0;
};

/// Blocks until all others have reached `target`, or the lookout finds a failure.
Outcome wait_for(const Gathering& gathering, uint64_t target, const Patience& patience, Lookout& lookout);
/// Waits for one of them, `gathering.others[index]`.
Outcome wait_for_one(const Gathering& gathering, size_t index, uint64_t target, const Patience& patience,
                     Lookout& lookout);

/// Waits between two reads of `counter`: as Patience::keep_time says if `keeps_core`, otherwise with a yield.
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
