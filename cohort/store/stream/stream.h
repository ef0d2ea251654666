/// Stream: bytes to and from a server, as they are or within TLS, until a deadline. Private to this folder.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::store {

class Stream {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Stream() = default;
  /// Sends all of them.
  virtual base::Result<void> send(std::string_view bytes, Clock::time_point deadline) = 0;
  /// Waits for some bytes and returns how many there are; 0: the server has closed the connection.
  virtual base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point deadline) = 0;
  /// A new connection would fail in the same way as this one did.
  virtual bool is_hopeless() const { return false; }
};

/// Opens a connection in another way than by TCP: for tests that answer themselves.
using OpenStream = std::function<std::unique_ptr<Stream>()>;

/// A connected socket.
class SocketStream final : public Stream {
 public:
  explicit SocketStream(base::Fd socket) : socket_(std::move(socket)) {}

  base::Result<void> send(std::string_view bytes, Clock::time_point deadline) override;
  base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point deadline) override;

 private:
  base::Result<void> wait_for(short events, Clock::time_point deadline) const;

  base::Fd socket_;
};

}  // namespace cohort::store
