/// UNIX sockets with abstract names, which have no file and go with their last descriptor, also after kill -9; and messages that
/// carry a descriptor. Only processes of one network namespace can connect.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "cohort/base/file/file.h"

namespace cohort::shm {

/// What bind and connect take for an abstract name of at most kMaxBytes; longer ones are cut.
class UnixAddress {
 public:
  static constexpr size_t kMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
  explicit UnixAddress(const std::string& name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

/// The process at the other end, if it is this user's: of a listener the one that called listen.
std::optional<int> own_users_process(const base::Fd& connection);

/// Blocks until there is something to read, the other end is closed, or the time is over; false in the latter case and on a
/// signal. Negative: no limit.
bool is_readable(const base::Fd& fd, int timeout_ms);

/// One sendmsg with these bytes and, unless null, the descriptor. Never raises SIGPIPE. Returns what sendmsg does, errno set.
ptrdiff_t send_with_fd(const base::Fd& connection, std::span<const char> bytes, const base::Fd* fd, int flags = 0);

struct MessageWithFd {
  /// As recvmsg returns it: 0 at the end of the connection, negative with errno set.
  ptrdiff_t num_bytes = 0;
  /// Of a socket that keeps messages apart: it was longer than the buffer.
  bool is_cut = false;
  /// None if the message had none. Of several only the first is taken; the kernel closes the others.
  base::Fd fd;
};
/// One recvmsg. The descriptor is closed on exec.
MessageWithFd receive_with_fd(const base::Fd& connection, std::span<char> bytes, int flags = 0);

}  // namespace cohort::shm
