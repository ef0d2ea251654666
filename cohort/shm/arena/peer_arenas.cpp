#include "cohort/shm/arena/peer_arenas.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/arena/process_arena.h"

namespace cohort::shm {

ArenaAddress address_of_process_arena() {
  const auto* const arena = process_arena();
  struct stat status {};
  if (!arena || fstat(arena->fd(), &status) != 0) return {};
  return {arena->fd(), arena->memory()->size(), status.st_dev, status.st_ino};
}

base::Result<SharedMemoryPtr> map_arena(pid_t pid, const ArenaAddress& address) {
  if (pid == getpid()) {
    if (auto* const arena = process_arena()) return arena->memory();
  }
  const auto path = fmt::format("/proc/{}/fd/{}", pid, address.fd);
  const base::Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return base::Error(fmt::format("cannot open {}: {}", path, base::errno_text(errno)));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || status.st_dev != address.device || status.st_ino != address.inode) {
    return base::Error(fmt::format("{} is not the memory that its process has told of", path));
  }
  auto memory = SharedMemory::open(fd, address.num_bytes);
  if (!memory) return memory;
  madvise((*memory)->data(), (*memory)->size(), MADV_DONTDUMP);
  madvise((*memory)->data(), (*memory)->size(), MADV_DONTFORK);
  return memory;
}

}  // namespace cohort::shm
