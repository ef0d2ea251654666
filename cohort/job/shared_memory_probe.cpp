#include "cohort/job/shared_memory_probe.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/engine/group.h"

namespace cohort::job {
namespace {

constexpr size_t kPage = 4096;

std::string failed(const char* call) { return std::string(call) + ": " + base::errno_text(errno); }

std::string try_memory() {
  const base::Fd fd(memfd_create("cohort-probe", MFD_CLOEXEC));
  if (!fd) return failed("memfd_create");
  if (ftruncate(fd.get(), kPage) != 0) return failed("ftruncate");
  void* const memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return failed("mmap");
  munmap(memory, kPage);
  return {};
}

std::string try_socket() {
  const base::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return failed("socket");
  const auto name = shm::new_address();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return failed("bind");
  return {};
}

}  // namespace

std::string find_shm_obstacle() {
  auto obstacle = try_memory();
  return obstacle.empty() ? try_socket() : obstacle;
}

}  // namespace cohort::job
