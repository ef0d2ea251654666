/// CommonMemory: memory that the ranks of a group share (Group::allocate gives each rank its own part). Every process maps it
/// twice: once for writing, and once read-only, so that other code in it cannot write.
///
/// A forked child has neither mapping (MADV_DONTFORK): its reads would see changes, it could write to memory that all ranks use,
/// and it would keep the pages after the ranks have ended. An access in the child is SIGSEGV. Programs that a process starts with
/// exec do not have the mappings either.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {

/// Pages that a process can only read: a write to them is SIGSEGV. Its forked children do not have them.
class ReadOnlyMapping {
 public:
  static base::Result<std::shared_ptr<const ReadOnlyMapping>> create(const base::Fd& fd, size_t num_bytes);
  ~ReadOnlyMapping();
  ReadOnlyMapping(const ReadOnlyMapping&) = delete;
  ReadOnlyMapping& operator=(const ReadOnlyMapping&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Returns false in forked children of the process that made it.
  bool is_here() const;

 private:
  ReadOnlyMapping(std::byte* data, size_t size, pid_t only_in) : data_(data), size_(size), only_in_(only_in) {}

  std::byte* data_;
  size_t size_;
  pid_t only_in_;  ///< 0 if forked children have it, too, because the kernel has refused to hide it
};

struct CommonMemory {
  SharedMemoryPtr writable;
  /// The same bytes, read-only.
  std::shared_ptr<const ReadOnlyMapping> readable;
};

/// Allocates the pages of part `index` of `count` of the file now, so that a lack of memory is an error, and not SIGBUS at a
/// later write. The pages are near the processor that this thread runs on.
base::Result<void> make_pages(const base::Fd& fd, size_t num_bytes, int index, int count);

}  // namespace cohort::shm
