/// Arena: memory for the tensors of this process that the other ranks of its host can map. Freed blocks are used again.
///
/// It is one memfd, reserved once and never enlarged; a page is allocated when it is first written. Blocks are complete pages,
/// chosen by best fit, and adjacent free blocks are joined. A freed block keeps its pages for the next block of its size, because
/// allocating a page costs more than all arithmetic on it. The pages in free blocks are limited: together with those in use they
/// are at most kFootprintFactor times the peak use, plus kSlackBytes; pages beyond that go back to the system.
///
/// After a fork the child maps the arena privately: it sees its parent's blocks, and what it writes stays its own. On pages that
/// it has not written it may also see what the parent writes after the fork. Nobody can map a child's arena.
///
/// Core dumps leave it out (MADV_DONTDUMP), because they would allocate all pages that do not exist.
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
  size_t used_bytes = 0;         ///< blocks in use
  size_t peak_used_bytes = 0;    ///< the peak of used_bytes
  size_t cached_bytes = 0;       ///< pages in free blocks
  size_t quarantined_bytes = 0;  ///< blocks that are never used again, see quarantine()
  size_t num_recycled = 0;       ///< blocks that found their pages
  size_t num_fresh = 0;          ///< blocks whose pages had to be allocated
  size_t num_refused = 0;        ///< requests refused because there was no space, or the process had been forked
};

/// Thread-safe. Never destroyed, because blocks may be freed while the process exits.
class Arena {
 public:
  static constexpr double kFootprintFactor = 1.25;
  static constexpr size_t kSlackBytes = size_t{32} << 20;

  /// Fails if limits of the process or the system forbid it; the error says which.
  static base::Result<Arena*> create(size_t reserved_bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns a block of at least `num_bytes`, aligned to a page, with any content. Null if there is no space, or the process was
  /// forked since.
  void* take(size_t num_bytes);
  /// Frees the block. Requires a block from take().
  void release(void* block);
  bool has(const void* memory) const { return memory >= base_ && memory < base_ + reserved_; }
  /// Marks blocks in the `num_bytes` from `memory` on to which other ranks may still write: they are not used again after
  /// release().
  void quarantine(const void* memory, size_t num_bytes);
  /// Returns the pages of free blocks to the system, until `most_cached` bytes of them are left.
  void give_back(size_t most_cached = 0);

  ArenaStats stats() const;
  /// The descriptor with which others map it; -1 in a forked child.
  int fd() const { return fd_.get(); }
  const SharedMemoryPtr& memory() const { return memory_; }
  /// Makes every later fork hold the lock of arenas.
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
  FreeRanges empty_;   ///< without pages
  std::unordered_map<size_t, Block> blocks_;
  size_t end_of_used_ = 0;  ///< pages beyond it were never allocated
  ArenaStats stats_;
};

}  // namespace cohort::shm
