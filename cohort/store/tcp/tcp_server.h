/// TcpServer: a store that other processes reach by TCP, with the protocol of c10d's TCPStore (protocol.h). Clients of PyTorch's
/// and LibTorch's TCPStore work against it.
///
/// One thread serves all clients; none of them can make the others wait: nothing blocks, a client is read from in small pieces
/// and not at all while it does not take its answers, and one that breaks the protocol is dropped with a line in the log.
/// A client without a request under way costs a few hundred bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/store/stream/socket.h"

namespace cohort::store {

struct TcpServerOptions {
  /// Empty: all interfaces. A loopback address: processes of other users are refused, but for root's; COHORT_STORE_ANY_USER=1
  /// admits them.
  std::string host;
  /// 0: a free one.
  int port = 0;
  base::IpFamily family = base::IpFamily::kAny;
  /// Not empty: keys under "cohort/" are for clients with the same (token.h).
  std::string token;
  /// How much its content and its clients' requests may take altogether, and a quarter more with the answers that are under
  /// way. A client that asks for more is dropped. 0: COHORT_STORE_MEMORY in MiB, or 1 GiB.
  size_t max_bytes = 0;
};

class TcpServer {
 public:
  /// Listens when it returns. Errors name the address and who holds a taken port, or a variable that cannot be read.
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
