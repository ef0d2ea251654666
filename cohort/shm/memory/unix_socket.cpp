#include "cohort/shm/memory/unix_socket.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace cohort::shm {
namespace {

// Space for exactly one descriptor: CMSG_SPACE is rounded up, and the kernel would fill it with a second one.
constexpr size_t kRoomForOneFd = CMSG_LEN(sizeof(int));

}  // namespace

// A leading zero byte makes the name abstract.
UnixAddress::UnixAddress(const std::string& name) {
  address_.sun_family = AF_UNIX;
  const auto length = std::min(name.size(), kMaxBytes);
  std::memcpy(address_.sun_path + 1, name.data(), length);
  length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

std::optional<int> own_users_process(const base::Fd& connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) return {};
  return peer.pid;
}

bool is_readable(const base::Fd& fd, int timeout_ms) {
  pollfd entry{fd.get(), POLLIN, 0};
  return poll(&entry, 1, timeout_ms) > 0;
}

ptrdiff_t send_with_fd(const base::Fd& connection, std::span<const char> bytes, const base::Fd* fd, int flags) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int raw = fd->get();
    std::memcpy(CMSG_DATA(header), &raw, sizeof(raw));
  }
  return sendmsg(connection.get(), &message, flags | MSG_NOSIGNAL);
}

MessageWithFd receive_with_fd(const base::Fd& connection, std::span<char> bytes, int flags) {
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = kRoomForOneFd;
  MessageWithFd received;
  received.num_bytes = recvmsg(connection.get(), &message, flags | MSG_CMSG_CLOEXEC);
  if (received.num_bytes < 0) return received;
  received.is_cut = (message.msg_flags & MSG_TRUNC) != 0;
  const auto* const header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int raw = -1;
    std::memcpy(&raw, CMSG_DATA(header), sizeof(raw));
    received.fd.reset(raw);
  }
  return received;
}

}  // namespace cohort::shm
