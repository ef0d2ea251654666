/// CommonMemory: memory that the ranks of a group have once, all of them together (Group::allocate gives each rank a part of its
/// own). Every process maps it twice: so that it can write where that is its task, and so that nothing else of it can.
#pragma once

#include <cstddef>
#include <memory>

#include "cohort/base/file.h"
#include "cohort/base/result.h"
#include "cohort/shm/shared_memory.h"

namespace cohort::shm {

/// Pages that a process can read and not write: a write to them is SIGSEGV.
class ReadOnlyMapping {
 public:
  static base::Result<std::shared_ptr<const ReadOnlyMapping>> create(const base::Fd& fd, size_t num_bytes);
  ~ReadOnlyMapping();
  ReadOnlyMapping(const ReadOnlyMapping&) = delete;
  ReadOnlyMapping& operator=(const ReadOnlyMapping&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  ReadOnlyMapping(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
};

struct CommonMemory {
  SharedMemoryPtr writable;
  /// The same bytes. A forked child sees them, too, and what the ranks write to them.
  std::shared_ptr<const ReadOnlyMapping> readable;
};

/// Makes the pages of part `index` of `count` of the file now, so that a lack of memory is an error, and not SIGBUS at some later
/// write. They are near the processor that this thread runs on.
base::Result<void> make_pages(const base::Fd& fd, size_t num_bytes, int index, int count);

}  // namespace cohort::shm
