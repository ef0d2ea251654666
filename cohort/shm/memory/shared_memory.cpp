#include "cohort/shm/memory/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::shm {
namespace {

using base::errno_text;
using base::Error;
using base::Result;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The mappings of this process, by the identity of the file.
struct Mappings {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<SharedMemory>> by_file;
};

// Leaked on purpose, because memory may be released while the process exits.
Mappings& mappings() {
  static auto* const all = new Mappings;
  return *all;
}

// Returns an empty text if there is no limit.
std::string limit_in_words(decltype(RLIMIT_AS) resource, const char* what, const char* flag) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; {} is limited to {} (ulimit {})", what, base::format_bytes(limit.rlim_cur), flag);
}

Result<std::byte*> map(int fd, size_t size) {
  auto* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    return Error(fmt::format("cannot map {} of shared memory: {}{}", base::format_bytes(size), errno_text(errno),
                             limit_in_words(RLIMIT_AS, "this process's address space", "-v")));
  }
  // Only a wish: most kernels have huge pages disabled for shared memory. Page faults are cheaper with them.
  madvise(data, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

}  // namespace

size_t whole_pages(size_t num_bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (num_bytes + page - 1) / page * page;
}

void SharedMemory::watch_forks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { mappings().mutex.lock(); }, [] { mappings().mutex.unlock(); },
                     [] {
                       mappings().by_file.clear();
                       mappings().mutex.unlock();
                     });
}

Result<SharedMemoryPtr> SharedMemory::create(size_t num_bytes, base::Fd* fd) {
  const auto size = whole_pages(num_bytes);
  // A larger file would make the kernel end the process (SIGXFSZ).
  if (rlimit limit{}; getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
    return Error(fmt::format("cannot make {} of shared memory: {}{}", base::format_bytes(size), errno_text(EFBIG),
                             limit_in_words(RLIMIT_FSIZE, "the size of this process's files", "-f")));
  }
  *fd = base::Fd(memfd_create("cohort", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!*fd) {
    return Error(fmt::format("cannot create shared memory (memfd_create): {}", errno_text(errno)))
        .with_hint("a container's seccomp profile may forbid memfd_create; allow it, or choose backend \"gloo\"");
  }
  fchmod(fd->get(), 0600);
  if (ftruncate(fd->get(), static_cast<off_t>(size)) != 0 || fcntl(fd->get(), F_ADD_SEALS, kSeals) != 0) {
    return Error(fmt::format("cannot size shared memory to {}: {}", base::format_bytes(size), errno_text(errno)));
  }
  return open(*fd, size);
}

Result<SharedMemoryPtr> SharedMemory::open(const base::Fd& fd, size_t num_bytes) {
  const auto size = whole_pages(num_bytes);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return Error(fmt::format("cannot look at shared memory: {}", errno_text(errno)));
  const int seals = fcntl(fd.get(), F_GET_SEALS);  // -1 for a file that cannot have seals
  if (!S_ISREG(status.st_mode) || static_cast<size_t>(status.st_size) != size || seals < 0 ||
      (seals & kSeals) != kSeals) {
    return Error(
        fmt::format("was given something other than shared memory of {} with a fixed size", base::format_bytes(size)));
  }
  watch_forks();
  auto& all = mappings();
  const std::lock_guard lock(all.mutex);
  auto& entry = all.by_file[{status.st_dev, status.st_ino}];
  if (auto known = entry.lock()) return known;
  auto data = map(fd.get(), size);
  if (!data) {
    all.by_file.erase({status.st_dev, status.st_ino});
    return data.error();
  }
  // The last owner removes the entry before it frees the pages, because the kernel may then give the identity to another file.
  const auto forget = [key = std::pair(status.st_dev, status.st_ino)](SharedMemory* memory) {
    {
      auto& known = mappings();
      const std::lock_guard guard(known.mutex);
      const auto found = known.by_file.find(key);
      if (found != known.by_file.end() && found->second.expired()) known.by_file.erase(found);
    }
    delete memory;
  };
  auto memory = SharedMemoryPtr(new SharedMemory(*data, size), forget);
  entry = memory;
  return memory;
}

void SharedMemory::keep_from_children() {
  if (madvise(data_, size_, MADV_DONTFORK) == 0) only_in_ = getpid();
}

// In a child the addresses may belong to other memory by now.
SharedMemory::~SharedMemory() {
  if (only_in_ == 0 || only_in_ == getpid()) munmap(data_, size_);
}

}  // namespace cohort::shm
