/// Bell: a rank sleeps on it until another rank, or another thread of its own, has changed something it should look at.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cohort::shm {

/// Lives in shared memory, zero at first. Any number of sleepers and ringers.
///
/// No ring is lost: who changes shared state stores it (sequentially consistent), then reads `num_sleepers`; a sleeper
/// raises `num_sleepers` first and looks at that state afterwards (sequentially consistent too). In the single order of these
/// accesses one comes first, so either the ringer sees the sleeper or the sleeper sees the change.
struct alignas(64) Bell {
  /// The futex word: partner is the kernel, which compares it with what the sleeper saw.
  std::atomic<uint32_t> num_rings;
  std::atomic<uint32_t> num_sleepers;

  /// After a sequentially consistent store of what has changed.
  void ring() {
    if (has_sleepers()) wake();
  }
  bool has_sleepers() const { return num_sleepers.load(std::memory_order_seq_cst) != 0; }
  /// The sleeper announces itself, looks once more, sleeps unless something has changed, and ends.
  uint32_t begin_sleep();
  /// Returns at the latest after `limit`; also now and then without reason.
  void sleep(uint32_t rings_seen, std::chrono::nanoseconds limit);
  void end_sleep();

 private:
  void wake();
};
static_assert(sizeof(Bell) == 64);

}  // namespace cohort::shm
