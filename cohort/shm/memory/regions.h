/// Regions: the memory of Group::allocate (one part per rank, all parts mapped by every rank), and the ranks' arenas.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/shm/memory/shared_memory.h"
#include "cohort/shm/terms/place.h"

namespace cohort::shm {

/// The regions of one group, on one rank. Thread-safe.
class Regions {
 public:
  explicit Regions(int rank) : rank_(rank) {}

  /// Adds the next region. Every rank must add the same ones in the same order. Returns this rank's part.
  std::byte* add(SharedMemoryPtr memory, size_t part_bytes);
  /// Sets every rank's arena. Must be called before any operation.
  void set_arenas(std::vector<SharedMemoryPtr> arenas) { arenas_ = std::move(arenas); }
  const std::vector<SharedMemoryPtr>& arenas() const { return arenas_; }
  bool has_arenas() const { return !arenas_.empty(); }
  /// Finds the region of `memory`. Without regions and arenas it only costs one relaxed load.
  Place find(const void* memory, size_t num_bytes) const;
  /// Returns the address of `rank`'s bytes at `place`. Null if they are not completely in its part, or the region is gone here.
  std::byte* address(int rank, const Place& place, size_t num_bytes) const {
    return hold(rank, place, num_bytes).get();
  }
  /// As address(), but keeps the region mapped here as long as the result exists.
  std::shared_ptr<std::byte> hold(int rank, const Place& place, size_t num_bytes) const;

  /// Unmaps the region of which `memory` is this rank's part, of any group.
  static void release(void* memory);
  /// The size of this process's parts that are not released.
  static size_t num_bytes();

 private:
  struct Entry {
    uint64_t number = 0;
    size_t part_bytes = 0;
    SharedMemoryPtr memory;
  };

  int rank_;
  std::vector<SharedMemoryPtr> arenas_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> num_added_ = 0;
  /// Shared with release(), which may be called after the group was destroyed.
  mutable std::vector<std::weak_ptr<const Entry>> entries_;
};

}  // namespace cohort::shm
