#include "cohort/snapshot/server_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "cohort/base/text/text.h"
#include "cohort/shm/memory/shared_memory.h"
#include "cohort/snapshot/free_memory.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

namespace {

/// Returns the size of the pages that a memory file does not have yet.
uint64_t bytes_not_taken(const base::Fd& fd, uint64_t size) {
  constexpr uint64_t kBlockBytes = 512;  // the unit of stat()
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return size;
  return size - std::min(size, static_cast<uint64_t>(info.st_blocks) * kBlockBytes);
}

}  // namespace

Result<void> ServerFiles::check_number(const std::string& id) const {
  if (files_.size() < most_files_ || files_.contains(id)) return {};
  return Error(fmt::format("the launcher already holds {} memory files", files_.size()));
}

// Counts space that other files may still need: ranks create their files at the same time and fill them later.
Result<void> ServerFiles::check_memory(const std::string& id, uint64_t num_bytes) const {
  for (const auto& [other, file] : files_) {
    if (other != id) num_bytes += bytes_not_taken(file.fd, file.size);
  }
  return check_free_memory(num_bytes);
}

Result<void> ServerFiles::put(const std::string& id, base::Fd fd) {
  if (Result<void> checked = check_number(id); !checked) return checked;
  struct stat info {};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fd ? ::fcntl(fd.get(), F_GET_SEALS) : -1;  // -1 for a file that cannot have seals
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error("was given something other than a memory file of a fixed size");
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (Result<void> checked = check_memory(id, bytes_not_taken(fd, size)); !checked) return checked;
  files_[id] = {std::move(fd), size};
  return {};
}

Result<void> ServerFiles::make(const std::string& id, uint64_t size) {
  if (const File* file = find(id); file && file->size == shm::whole_pages(size)) return {};
  if (Result<void> checked = check_number(id); !checked) return checked;
  drop(id);
  if (Result<void> checked = check_memory(id, size); !checked) return checked;
  base::Fd fd;
  const Result<shm::SharedMemoryPtr> memory = shm::SharedMemory::create(size, &fd);
  if (!memory) return memory.error();
  files_[id] = {std::move(fd), (*memory)->size()};
  return {};
}

const ServerFiles::File* ServerFiles::find(const std::string& id) const {
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : &found->second;
}

}  // namespace cohort::snapshot
