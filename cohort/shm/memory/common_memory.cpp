#include "cohort/shm/memory/common_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::shm {

using base::errno_text;
using base::Error;

base::Result<std::shared_ptr<const ReadOnlyMapping>> ReadOnlyMapping::create(const base::Fd& fd, size_t num_bytes) {
  const auto size = whole_pages(num_bytes);
  auto* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Error(
        fmt::format("cannot map {} of shared memory to read it: {}", base::format_bytes(size), errno_text(errno)));
  }
  madvise(data, size, MADV_HUGEPAGE);
  const pid_t only_in = madvise(data, size, MADV_DONTFORK) == 0 ? getpid() : 0;
  return std::shared_ptr<const ReadOnlyMapping>(new ReadOnlyMapping(static_cast<std::byte*>(data), size, only_in));
}

bool ReadOnlyMapping::is_here() const { return only_in_ == 0 || only_in_ == getpid(); }

// In a child the addresses may belong to other memory by now.
ReadOnlyMapping::~ReadOnlyMapping() {
  if (is_here()) munmap(data_, size_);
}

base::Result<void> make_pages(const base::Fd& fd, size_t num_bytes, int index, int count) {
  const auto pages = whole_pages(num_bytes);
  const auto part = whole_pages((pages + static_cast<size_t>(count) - 1) / static_cast<size_t>(count));
  const auto begin = std::min(pages, part * static_cast<size_t>(index));
  const auto bytes = std::min(part, pages - begin);
  if (bytes == 0) return {};
  int result = 0;
  do {
    result = fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return {};
  return Error(fmt::format("cannot make the pages of {} of shared memory: {}", base::format_bytes(bytes),
                           errno_text(errno)))
      .with_hint("give the host or the container more memory for the parameters");
}

}  // namespace cohort::shm
