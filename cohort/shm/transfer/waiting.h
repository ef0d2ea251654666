/// Waiting for other ranks: counters in shared memory, and how long to spin before sleeping.
///
/// Every rank raises a counter of its own and waits until all others, or one of them, have reached the same value: it spins for a
/// while, then yields, then sleeps in the kernel (futex) in slices, and looks after its peers between two slices. Sleepers are
/// woken by the rank that comes last, or by one whom some wait for alone.
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

/// Lives in shared memory, zero at first. Raised by one rank, read by the others.
struct Counter {
  /// Sequentially consistent, as Bell asks of what its sleepers look at.
  std::atomic<uint64_t> value;
  /// The core on which the raiser raised it last, plus one. A hint: who waits on that very core had better make room.
  std::atomic<uint32_t> core;
  /// What the raiser says with it: written before `value` is raised, read after.
  uint32_t word;

  bool has_reached(uint64_t target) const { return value.load(std::memory_order_seq_cst) >= target; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// The counters of ranks that wait for each other, as one of them sees them.
struct Gathering {
  Counter* own = nullptr;
  std::vector<Counter*> others = {};
  /// For all of them.
  Bell* bell = nullptr;

  bool is_complete(uint64_t target) const;
  /// Raises the own counter. Everything written before is seen by those who see `target`. Who comes last rings the bell.
  void arrive(uint64_t target) const;
  /// The same where others wait for this rank alone: rings in any case, and looks at nobody.
  void arrive_alone(uint64_t target) const;
};

/// How long to spin and yield before sleeping. A yield on an idle core returns at once, so it is a slower kind of spinning
/// that costs nobody anything; a pause keeps the core.
struct Patience {
  int num_pauses = 50;
  /// By time, not by number: on a busy host one yield can take many milliseconds.
  std::chrono::microseconds yield_time{500};
  /// Before it yields: how long it looks without letting go of its core, unless a rank that is missing was there last. On a
  /// busy machine what a yield lets in may stay for milliseconds.
  std::chrono::microseconds keep_time{0};
  /// How many yields may return at once before it sleeps. They have let in nobody: where a launcher gives each rank a session of
  /// its own the system may not count the others in (autogroup), and only sleep hands the core over.
  int num_idle_yields = std::numeric_limits<int>::max();
  /// What "at once" is: no thread that a yield lets in ends its turn so soon.
  std::chrono::nanoseconds least_turn{1500};
  /// For ranks that share cores: long spins would take the time of a rank that is waited for, unless it is on another core.
  static Patience shared_cores() { return {.num_pauses = 100, .num_idle_yields = 5}; }
  /// For ranks of which each has a core to itself.
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
