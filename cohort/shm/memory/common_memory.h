/// CommonMemory: memory that the ranks of a group have once, all of them together (Group::allocate gives each rank a part of its
/// own). Every process maps it twice: so that it can write where that is its task, and so that nothing else of it can.
///
/// A forked child has neither mapping (MADV_DONTFORK): it would see what it reads change under its eyes, could write to what all
/// ranks use, and would keep the pages when the ranks are gone. An access is SIGSEGV there. Programs that a process starts by
/// exec never had the mappings.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {

/// Pages that a process can read and not write: a write to them is SIGSEGV. Its forked children do not have them.
class ReadOnlyMapping {
 public:
  static base::Result<std::shared_ptr<const ReadOnlyMapping>> create(const base::Fd& fd, size_t num_bytes);
  ~ReadOnlyMapping();
  ReadOnlyMapping(const ReadOnlyMapping&) = delete;
  ReadOnlyMapping& operator=(const ReadOnlyMapping&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// False in forked children of the process that made it.
  bool is_here() const;

 private:
  ReadOnlyMapping(std::byte* data, size_t size, pid_t only_in) : data_(data), size_(size), only_in_(only_in) {}

  std::byte* data_;
  size_t size_;
  pid_t only_in_;  ///< 0: forked children have it, too, as the kernel has refused to keep it from them
};

struct CommonMemory {
  SharedMemoryPtr writable;
  /// The same bytes.
  std::shared_ptr<const ReadOnlyMapping> readable;
};

/// Makes the pages of part `index` of `count` of the file now, so that a lack of memory is an error, and not SIGBUS at some later
/// write. They are near the processor that this thread runs on.
base::Result<void> make_pages(const base::Fd& fd, size_t num_bytes, int index, int count);

}  // namespace cohort::shm
