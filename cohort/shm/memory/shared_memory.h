/// SharedMemory: an anonymous file in memory (memfd), mapped into this process.
///
/// It has no name in a file system: only processes that get the descriptor can map it, and the kernel frees it with the last
/// mapping, also after kill -9. It does not count against the size of /dev/shm. It cannot be resized, so that nobody can take
/// pages away from a reader.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::shm {

class SharedMemory;
using SharedMemoryPtr = std::shared_ptr<SharedMemory>;

/// One mapping per process: ranks that are threads get the same object. Thread-safe.
class SharedMemory {
 public:
  /// Creates zeroed memory of `num_bytes`, rounded up to complete pages. `fd` receives the descriptor with which others map it.
  static base::Result<SharedMemoryPtr> create(size_t num_bytes, base::Fd* fd);
  /// Maps memory that another rank created. Fails unless it is a memfd of exactly this size that cannot be resized.
  static base::Result<SharedMemoryPtr> open(const base::Fd& fd, size_t num_bytes);
  /// Makes every child forked later map files anew: an inherited mapping may be private there, or missing.
  static void watch_forks();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Hides the mapping from processes that are forked later. Thread-safe.
  void keep_from_children();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
  std::atomic<pid_t> only_in_{0};  ///< the only process that has the mapping; 0 if its children have it, too
};

/// Rounds `num_bytes` up to complete pages.
size_t whole_pages(size_t num_bytes);

}  // namespace cohort::shm
