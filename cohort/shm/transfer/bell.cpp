#include "cohort/shm/transfer/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace cohort::shm {

void Bell::wake() {
  // Before the wake-up, so that a sleeper that has not reached the kernel yet finds another number and does not sleep.
  num_rings.fetch_add(1, std::memory_order_seq_cst);
  // The memory is shared between processes, so not FUTEX_PRIVATE_FLAG.
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&num_rings), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t Bell::begin_sleep() {
  num_sleepers.fetch_add(1, std::memory_order_seq_cst);
  return num_rings.load(std::memory_order_seq_cst);
}

void Bell::sleep(uint32_t rings_seen, std::chrono::nanoseconds limit) {
  constexpr int64_t kBillion = 1'000'000'000;
  const int64_t nanoseconds = std::max<int64_t>(limit.count(), 0);
  const timespec duration{static_cast<time_t>(nanoseconds / kBillion), static_cast<long>(nanoseconds % kBillion)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&num_rings), FUTEX_WAIT, rings_seen, &duration, nullptr, 0);
}

// Relaxed: a ringer that still sees the sleeper makes one unnecessary system call.
void Bell::end_sleep() { num_sleepers.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace cohort::shm
