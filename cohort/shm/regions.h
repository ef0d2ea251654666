/// Regions: the memory of Group::allocate, one part per rank, all parts mapped by every rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/shm/shared_memory.h"

namespace cohort::shm {

/// Where some bytes lie: in which of the group's regions (from 1; 0: in none), and how far from the part's begin.
struct Place {
  uint64_t region = 0;
  uint64_t offset = 0;
};

/// The regions of one group, on one rank. Thread-safe.
class Regions {
 public:
  explicit Regions(int rank) : rank_(rank) {}

  /// Takes the next region; every rank adds the same ones in the same order. Returns this rank's part.
  std::byte* add(SharedMemoryPtr memory, size_t part_bytes);
  /// Nothing is found while there is no region: one relaxed load.
  Place find(const void* memory, size_t num_bytes) const;
  /// Where the bytes are that `rank` calls `place`; null if they are not wholly in its part, or the region is gone here.
  std::byte* address(int rank, const Place& place, size_t num_bytes) const;

  /// Unmaps the region of which `memory` is this rank's part, whichever group it belongs to.
  static void release(void* memory);
  /// This process's parts that are not released.
  static size_t num_bytes();

 private:
  struct Entry {
    uint64_t number = 0;
    size_t part_bytes = 0;
    SharedMemoryPtr memory;
  };

  int rank_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> num_added_ = 0;
  /// Shared with release(), which may come after the group.
  mutable std::vector<std::weak_ptr<const Entry>> entries_;
};

}  // namespace cohort::shm
