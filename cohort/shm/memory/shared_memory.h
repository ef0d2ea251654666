/// SharedMemory: an anonymous file in memory (memfd), mapped into this process.
///
/// It has no name in a file system: only who is given the descriptor can map it, and the kernel frees it with the last mapping,
/// also after kill -9. It does not count against the size of /dev/shm. It cannot be resized, so that nobody can take pages
/// away under a reader.
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
  /// Zeroed memory of `num_bytes`, rounded up to whole pages. `fd` is what others map it by.
  static base::Result<SharedMemoryPtr> create(size_t num_bytes, base::Fd* fd);
  /// Maps what another rank created. Fails unless it is a memfd of exactly this size that cannot be resized.
  static base::Result<SharedMemoryPtr> open(const base::Fd& fd, size_t num_bytes);
  /// From now on a forked child maps files anew: what it inherits may be private there, or not mapped at all.
  static void watch_forks();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// From now on a process that is forked does not have the mapping. Thread-safe.
  void keep_from_children();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
  std::atomic<pid_t> only_in_{0};  ///< the process that alone has the mapping; 0: its children have it, too
};

/// `num_bytes` rounded up to whole pages.
size_t whole_pages(size_t num_bytes);

}  // namespace cohort::shm
