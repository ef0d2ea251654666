#include "cohort/store/stream/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "cohort/base/text/text.h"
#include "cohort/store/stream/socket.h"

namespace cohort::store {

using base::Error;
using base::Result;

Result<void> SocketStream::wait_for(short events, Clock::time_point deadline) const {
  pollfd poll_fd{socket_.get(), events, 0};
  const int ready = poll_until({&poll_fd, 1}, deadline);
  if (ready > 0) return {};
  return Error(ready == 0 ? "it gave no answer in time" : base::errno_text(errno));
}

Result<void> SocketStream::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const auto size = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      if (auto ready = wait_for(POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return Error(base::errno_text(errno));
    }
  }
  return {};
}

Result<size_t> SocketStream::receive(char* buffer, size_t size, Clock::time_point deadline) {
  while (true) {
    if (auto ready = wait_for(POLLIN, deadline); !ready) return ready.error();
    const auto received = recv(socket_.get(), buffer, size, MSG_DONTWAIT);
    if (received >= 0) return static_cast<size_t>(received);
    // The server closed the connection before it had read everything.
    if (errno == ECONNRESET) return 0;
    if (errno != EINTR && errno != EAGAIN) return Error(base::errno_text(errno));
  }
}

}  // namespace cohort::store
