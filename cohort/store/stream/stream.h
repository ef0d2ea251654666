/// Stream: sends bytes to a server and receives them, directly or with TLS, within a deadline. Private to this folder.
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
  /// Sends all bytes.
  virtual base::Result<void> send(std::string_view bytes, Clock::time_point deadline) = 0;
  /// Waits for some bytes and returns their number; 0 means that the server has closed the connection.
  virtual base::Result<size_t> receive(char* buffer, size_t size, Clock::time_point deadline) = 0;
  /// Whether a new connection would fail in the same way.
  virtual bool is_hopeless() const { return false; }
};

/// Opens a connection without TCP, for tests that write the answers themselves.
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
