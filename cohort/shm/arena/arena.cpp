#include "cohort/shm/arena/arena.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cohort/shm/arena/memory_tools.h"

namespace cohort::shm {
namespace {

// For the handlers around a fork. Leaked on purpose, as arenas are.
struct Arenas {
  std::mutex mutex;
  std::vector<Arena*> all;
};

Arenas& arenas() {
  static auto* const all = new Arenas;
  return *all;
}

}  // namespace

Arena::Arena(SharedMemoryPtr memory, base::Fd fd)
    : memory_(std::move(memory)), base_(memory_->data()), reserved_(memory_->size()), fd_(std::move(fd)) {
  empty_.add({0, reserved_});
  stats_.reserved_bytes = reserved_;
}

base::Result<Arena*> Arena::create(size_t reserved_bytes) {
  base::Fd fd;
  auto memory = SharedMemory::create(reserved_bytes, &fd);
  if (!memory) return memory.error();
  madvise((*memory)->data(), (*memory)->size(), MADV_DONTDUMP);
  watch_forks();
  auto* const arena = new Arena(std::move(*memory), std::move(fd));
  auto& known = arenas();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(arena);
  return arena;
}

void* Arena::take(size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  const bool is_possible = fd_ && num_bytes <= reserved_;
  const auto bytes = whole_pages(std::clamp<size_t>(num_bytes, 1, reserved_));
  auto begin = is_possible ? cached_.take(bytes) : std::nullopt;
  if (begin) {
    ++stats_.num_recycled;
  } else {
    begin = is_possible ? take_fresh(bytes) : std::nullopt;
    ++(begin ? stats_.num_fresh : stats_.num_refused);
    if (!begin) return nullptr;
  }
  end_of_used_ = std::max(end_of_used_, *begin + bytes);
  blocks_.emplace(*begin, Block{bytes});
  stats_.used_bytes += bytes;
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
  show_block(base_ + *begin, num_bytes);
  return base_ + *begin;
}

// First frees space for its pages, so that the limit holds.
std::optional<size_t> Arena::take_fresh(size_t bytes) {
  const auto used = stats_.used_bytes + bytes;
  const auto peak = std::max(stats_.peak_used_bytes, used);
  const auto footprint = static_cast<size_t>(static_cast<double>(peak) * kFootprintFactor) + kSlackBytes;
  give_back_locked(footprint - used);
  if (const auto begin = empty_.take(bytes)) return begin;
  if (!would_fit_joined(cached_, empty_, bytes)) return std::nullopt;
  give_back_locked(0);
  return empty_.take(bytes);
}

void Arena::release(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<std::byte*>(block) - base_));
  const auto begin = found->first;
  const auto [bytes, is_quarantined] = found->second;
  hide_block(block, bytes);
  stats_.used_bytes -= bytes;
  blocks_.erase(found);
  if (!is_quarantined) cached_.add({begin, bytes});
}

void Arena::quarantine(const void* memory, size_t num_bytes) {
  const auto begin = static_cast<size_t>(static_cast<const std::byte*>(memory) - base_);
  const std::lock_guard lock(mutex_);
  for (auto& [block_begin, block] : blocks_) {
    if (block_begin >= begin + num_bytes || block_begin + block.bytes <= begin || block.is_quarantined) continue;
    block.is_quarantined = true;
    stats_.quarantined_bytes += block.bytes;
  }
}

void Arena::give_back(size_t most_cached) {
  const std::lock_guard lock(mutex_);
  give_back_locked(most_cached);
}

// Gives back the longest ranges first, which needs fewer calls, and in complete pages, because the system rounds up the size.
void Arena::give_back_locked(size_t most_cached) {
  while (cached_.bytes() > most_cached) {
    const auto range = cached_.take_from_longest(whole_pages(cached_.bytes() - most_cached));
    if (madvise(base_ + range.begin, range.bytes, fd_ ? MADV_REMOVE : MADV_DONTNEED) != 0) {
      cached_.add(range);  // its pages still exist
      return;
    }
    empty_.add(range);
  }
}

ArenaStats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  auto stats = stats_;
  stats.cached_bytes = cached_.bytes();
  return stats;
}

// For the order of locks during a fork see process_arena.cpp.
void Arena::watch_forks() {
  static const int registered = pthread_atfork(
      [] {
        arenas().mutex.lock();
        for (auto* arena : arenas().all) arena->mutex_.lock();
      },
      [] {
        for (auto* arena : arenas().all) arena->mutex_.unlock();
        arenas().mutex.unlock();
      },
      [] {
        for (auto* arena : arenas().all) arena->after_fork_in_child();
        arenas().mutex.unlock();
      });
  (void)registered;
}

// Without this both processes would write the same pages. If the system refuses (it may count private pages at once:
// vm.overcommit_memory=2), the child has no tensors of its parent; it must not write to the parent's memory.
void Arena::after_fork_in_child() {
  mutex_.unlock();
  if (!fd_) return;
  const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  const bool is_hidden = mmap(base_, reserved_, PROT_NONE, flags | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
  const bool is_mapped =
      end_of_used_ == 0 || mmap(base_, end_of_used_, PROT_READ | PROT_WRITE, flags, fd_.get(), 0) != MAP_FAILED;
  if (!is_hidden || !is_mapped) {
    constexpr const char* kText =
        "[cohort] warning: a forked process cannot use the tensors of its parent: no memory\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, std::strlen(kText));
  }
  madvise(base_, reserved_, MADV_DONTDUMP);
  fd_.reset();
}

}  // namespace cohort::shm
