/// Arena: memory for the tensors of this process that the other ranks of its host can map, and that is recycled.
///
/// One memfd, reserved once and never grown: pages come into being when they are first written. Blocks are whole pages, best
/// fit, neighbours joined. A block that is let go keeps its pages, so that the next one of its size finds them: a page that
/// must be made anew costs more than all arithmetic on it. Pages in free blocks are bounded: with those in use they are at
/// most kFootprintFactor times the most that was ever in use, and kSlackBytes; beyond that they go back to the system.
///
/// After a fork the child maps the arena privately: it sees its parent's blocks, and what it writes is its own. On pages that it
/// has not written it may also see what the parent writes after the fork. Nobody can map a child's arena.
///
/// Core dumps leave it out (MADV_DONTDUMP), since they would fill in all pages that do not exist.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/shm/arena/free_ranges.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {

struct ArenaStats {
  size_t reserved_bytes = 0;     ///< address space
  size_t used_bytes = 0;         ///< blocks that are in use
  size_t peak_used_bytes = 0;    ///< the most of those
  size_t cached_bytes = 0;       ///< pages in free blocks
  size_t quarantined_bytes = 0;  ///< blocks that are never used again, see quarantine()
  size_t num_recycled = 0;       ///< blocks that found their pages
  size_t num_fresh = 0;          ///< blocks whose pages had to be made
  size_t num_refused = 0;        ///< times that there was no room, or the process had been forked
};

/// Thread-safe. Never destroyed: its blocks may be let go while the process exits.
class Arena {
 public:
  static constexpr double kFootprintFactor = 1.25;
  static constexpr size_t kSlackBytes = size_t{32} << 20;

  /// Fails where limits of the process or the system forbid it; the error says which.
  static base::Result<Arena*> create(size_t reserved_bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block of at least `num_bytes`, aligned to a page, of any content; null: no room, or the process was forked since.
  void* take(size_t num_bytes);
  /// Requires a block from take().
  void release(void* block);
  bool has(const void* memory) const { return memory >= base_ && memory < base_ + reserved_; }
  /// Others may still write to the blocks that `num_bytes` from `memory` on lie in: they are not used again after release().
  void quarantine(const void* memory, size_t num_bytes);
  /// Gives back the pages of free blocks, until `most_cached` bytes of them are left.
  void give_back(size_t most_cached = 0);

  ArenaStats stats() const;
  /// The descriptor that others map it by; -1 in a forked child.
  int fd() const { return fd_.get(); }
  const SharedMemoryPtr& memory() const { return memory_; }
  /// From now on the lock of arenas is held over a fork.
  static void watch_forks();

 private:
  Arena(SharedMemoryPtr memory, base::Fd fd);
  struct Block {
    size_t bytes = 0;
    bool is_quarantined = false;
  };

  std::optional<size_t> take_fresh(size_t bytes);
  void give_back_locked(size_t most_cached);
  void after_fork_in_child();

  const SharedMemoryPtr memory_;
  std::byte* const base_;
  const size_t reserved_;
  base::Fd fd_;
  mutable std::mutex mutex_;
  FreeRanges cached_;  ///< with pages
  FreeRanges empty_;   ///< without
  std::unordered_map<size_t, Block> blocks_;
  size_t end_of_used_ = 0;  ///< no page beyond it was ever made
  ArenaStats stats_;
};

}  // namespace cohort::shm
