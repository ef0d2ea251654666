#include "cohort/shm/arena/process_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace cohort::shm {
namespace {

constexpr size_t kMostReserved = size_t{256} << 30;

// The newest first; leaked on purpose.
struct Made {
  Arena* arena;
  const Made* earlier;
};
std::atomic<const Made*> newest = nullptr;

size_t memory_of_host() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Held over a fork, together with locks that are taken while it is held: their handlers are registered earlier, so they run after
// it.
std::mutex& making() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

void watch_forks_while_making() {
  Arena::watch_forks();
  SharedMemory::watch_forks();
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { making().lock(); }, [] { making().unlock(); }, [] { making().unlock(); });
}

}  // namespace

base::Result<Arena*> make_process_arena(size_t reserved_bytes) {
  watch_forks_while_making();
  const std::lock_guard lock(making());
  if (auto* const arena = process_arena()) return arena;
  const auto arena = Arena::create(reserved_bytes > 0 ? reserved_bytes : std::min(memory_of_host(), kMostReserved));
  if (arena) newest.store(new Made{*arena, newest.load()}, std::memory_order_release);
  return arena;
}

Arena* process_arena() {
  const auto* const made = newest.load(std::memory_order_acquire);
  return made && made->arena->fd() >= 0 ? made->arena : nullptr;
}

Arena* arena_of(const void* memory) {
  for (const auto* made = newest.load(std::memory_order_acquire); made; made = made->earlier) {
    if (made->arena->has(memory)) return made->arena;
  }
  return nullptr;
}

}  // namespace cohort::shm
