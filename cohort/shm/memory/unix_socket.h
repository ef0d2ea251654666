/// UNIX sockets with abstract names, which have no file and disappear with their last descriptor, also after kill -9; and
/// messages that carry a descriptor. Only processes of one network namespace can connect.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "cohort/base/file/file.h"

namespace cohort::shm {

/// The address of an abstract name of at most kMaxBytes, for bind and connect; longer names are cut.
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

/// Returns the process at the other end if it belongs to this user. For a listener, that is the process that called listen.
std::optional<int> own_users_process(const base::Fd& connection);

/// Blocks until there is something to read, or the other end is closed. Returns false after the timeout and on a signal. A
/// negative timeout means no limit.
bool is_readable(const base::Fd& fd, int timeout_ms);

/// Sends these bytes and, unless null, the descriptor with one sendmsg. Never raises SIGPIPE. Returns sendmsg's result, with
/// errno set.
ptrdiff_t send_with_fd(const base::Fd& connection, std::span<const char> bytes, const base::Fd* fd, int flags = 0);

struct MessageWithFd {
  /// The result of recvmsg: 0 at the end of the connection, negative with errno set.
  ptrdiff_t num_bytes = 0;
  /// Whether a message was longer than the buffer, on a socket that keeps messages apart.
  bool is_cut = false;
  /// Invalid if the message had none. If it had several, only the first is kept; the kernel closes the others.
  base::Fd fd;
};
/// Receives with one recvmsg. The descriptor is closed on exec.
MessageWithFd receive_with_fd(const base::Fd& connection, std::span<char> bytes, int flags = 0);

}  // namespace cohort::shm
