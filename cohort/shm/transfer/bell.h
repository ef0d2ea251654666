/// Bell: a rank sleeps on it until another rank, or another thread of its own, has changed something that it must check.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cohort::shm {

/// Lives in shared memory, zero at first. Any number of threads may sleep and ring.
///
/// No ring is lost. A thread that changes shared state stores it (sequentially consistent), then reads `num_sleepers`; a sleeper
/// first increases `num_sleepers` and then reads that state (also sequentially consistent). In the single order of these accesses
/// one comes first, so either the ringer sees the sleeper or the sleeper sees the change.
struct alignas(64) Bell {
  /// The futex word. Paired with: the kernel, which compares it with the value that the sleeper saw.
  std::atomic<uint32_t> num_rings;
  std::atomic<uint32_t> num_sleepers;

  /// Wakes sleepers. Call it after a sequentially consistent store of the change.
  void ring() {
    if (has_sleepers()) wake();
  }
  bool has_sleepers() const { return num_sleepers.load(std::memory_order_seq_cst) != 0; }
  /// Announces a sleeper. It then checks once more, sleeps unless something has changed, and calls end_sleep().
  uint32_t begin_sleep();
  /// Returns after `limit` at the latest; sometimes also without reason.
  void sleep(uint32_t rings_seen, std::chrono::nanoseconds limit);
  void end_sleep();

 private:
  void wake();
};
static_assert(sizeof(Bell) == 64);

}  // namespace cohort::shm
