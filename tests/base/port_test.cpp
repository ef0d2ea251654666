#include "cohort/base/port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

namespace cohort::base {
namespace {

/// A listening socket on the port, as a server that sets SO_REUSEADDR makes it; empty if the port is refused.
Fd listen_on(int port) {
  Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  if (::listen(server.get(), 1) != 0) return {};
  return server;
}

TEST(Port, ServerCanListenOnReservedPort) {
  const Result<PortReservation> reserved = reserve_port();
  ASSERT_TRUE(reserved);
  EXPECT_TRUE(listen_on(reserved->port));
}

TEST(Port, ReservedPortsAreDistinct) {
  std::vector<PortReservation> held;
  std::set<int> ports;
  for (int i = 0; i < 50; ++i) {
    held.push_back(reserve_port().value());
    ports.insert(held.back().port);
  }
  EXPECT_EQ(ports.size(), held.size());
}

}  // namespace
}  // namespace cohort::base
