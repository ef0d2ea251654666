#include "cohort/base/net/port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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

TEST(Port, TellsWhoListens) {
  const Result<PortReservation> reserved = reserve_port();
  ASSERT_TRUE(reserved);
  EXPECT_FALSE(look_up_port(reserved->port).is_listened_on);
  const Fd server = listen_on(reserved->port);
  const PortUse use = look_up_port(reserved->port);
  EXPECT_TRUE(use.is_listened_on);
  ASSERT_TRUE(use.holder);
  EXPECT_EQ(use.holder->pid, ::getpid());
  EXPECT_NE(use.holder->command.find("cohort_base_test"), std::string::npos) << use.holder->command;
}

TEST(Port, ReadsListeningSocketsOnly) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:7530 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n"
      "   1: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n";
  EXPECT_EQ(listening_inode(table, 30000), 4711u);
  EXPECT_EQ(listening_inode(table, 30001), std::nullopt);
  EXPECT_EQ(listening_inode("", 30000), std::nullopt);
}

}  // namespace
}  // namespace cohort::base
