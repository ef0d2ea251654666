/// TcpServer: a store that other processes reach by TCP, with the protocol of c10d's TCPStore (protocol.h). Clients of PyTorch's
/// and LibTorch's TCPStore work with it.
///
/// One thread serves all clients, and no client can make the others wait: nothing blocks, the server reads from a client in small
/// pieces, and not at all while the client does not accept its answers. The server drops a client that breaks the protocol and
/// logs a line. A client without a request costs a few hundred bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/store/stream/socket.h"

namespace cohort::store {

struct TcpServerOptions {
  /// The address to listen on. Empty means all interfaces. With a loopback address, processes of other users except root are
  /// refused; COHORT_STORE_ANY_USER=1 admits them.
  std::string host;
  /// The port; 0 means a free one.
  int port = 0;
  base::IpFamily family = base::IpFamily::kAny;
  /// If not empty, keys under "cohort/" are only for clients with the same token (token.h).
  std::string token;
  /// The memory limit for the content and the clients' requests together; answers that are being sent may add a quarter of it. A
  /// client that asks for more is dropped. 0 means COHORT_STORE_MEMORY in MiB, or 1 GiB.
  size_t max_bytes = 0;
};

class TcpServer {
 public:
  /// Listens when it returns. Errors name the address and the process that has a port that is in use, or a malformed variable.
  static base::Result<std::unique_ptr<TcpServer>> start(const TcpServerOptions& options);
  /// Drops all clients.
  ~TcpServer();

  int port() const;
  size_t num_clients() const;

 private:
  class Loop;
  explicit TcpServer(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace cohort::store
