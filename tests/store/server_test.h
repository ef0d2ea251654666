/// A server of this process, and its clients.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/tcp_server.h"
#include "tests/store/times.h"

namespace cohort::store {

class ServerTest : public testing::Test {
 protected:
  explicit ServerTest(const TcpServerOptions& options = {.host = "127.0.0.1"})
      : server_(TcpServer::start(options).value()) {}

  std::unique_ptr<TcpClient> connect() {
    return TcpClient::connect({.port = server_->port(), .timeout = kHangLimit}).value();
  }
  /// A client that says nothing of itself.
  base::Fd connect_raw() { return connect_to("127.0.0.1", server_->port(), kHangLimit).value(); }

  std::unique_ptr<TcpServer> server_;
};

}  // namespace cohort::store
