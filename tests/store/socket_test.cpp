#include "cohort/store/stream/socket.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/net/port.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;

// Linux gives even numbers to clients and odd ones to servers first, so an even one comes round in some ten thousand tries.
TEST(ConnectTo, AClientIsNotItsOwnServer) {
  const auto held = base::reserve_port().value();
  const int port = (held.port - 1) & ~1;
  if (base::look_up_port(port).is_listened_on) GTEST_SKIP() << "port " << port << " is another's";
  for (int i = 0; i < 100'000; ++i) {
    const auto socket = connect_to("127.0.0.1", port, milliseconds(0), base::IpFamily::kV4);
    ASSERT_FALSE(socket) << "try " << i << " has reached " << peer_name(socket->get());
  }
}

// In a network of its own, which has eight ports for whoever asks for any. Linux gives away the lower half first, and two of that
// are taken in one family.
void listen_where_ports_are_rare(std::vector<int>* ports) {
  if (unshare(CLONE_NEWNET) != 0) return;
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "40000 40007" << '\n';
  for (const auto family : {base::IpFamily::kV4, base::IpFamily::kV6}) {
    const auto first = listen_on("", 40000, family);
    const auto second = listen_on("", 40001, family);
    if (!first || !second) return;
    for (int i = 0; i < 50; ++i) {
      const auto listeners = listen_on("", 0);
      ports->push_back(listeners && listeners->size() == 2 ? listeners->front().port : -1);
    }
  }
}

TEST(ListenOn, APortThatIsTakenInOneFamilyIsNotTheOnlyOne) {
  std::vector<int> ports;
  std::thread(listen_where_ports_are_rare, &ports).join();
  if (ports.size() != 100) GTEST_SKIP() << "no network namespace, or no IPv6 in it";
  EXPECT_THAT(ports, testing::Each(testing::Ge(40002)));
}

// No host means this one, by its loopback addresses, in the resolver's order.
std::vector<std::string> loopback_addresses() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(nullptr, "1", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const auto* each = found; each; each = each->ai_next) {
    addresses.emplace_back(each->ai_family == AF_INET6 ? "::1" : "127.0.0.1");
  }
  return addresses;
}

// A server that takes no more connections: the kernel drops what knocks, as a firewall does.
struct DeafServer {
  explicit DeafServer(const std::string& host) : listener(std::move(listen_on(host, 0).value().front())) {
    listen(listener.socket.get(), 0);
    while (waiting.empty() || waiting.back()) waiting.push_back(connect_to(host, listener.port, milliseconds(200)));
  }
  Listener listener;
  std::vector<base::Result<base::Fd>> waiting;
};

TEST(ConnectTo, AnAddressThatSwallowsEverythingDoesNotHideTheNext) {
  const auto hosts = loopback_addresses();
  if (hosts.size() != 2 || !listen_on("::1", 0)) GTEST_SKIP() << "no IPv6 here";
  const DeafServer deaf(hosts[0]);
  const auto hearing = listen_on(hosts[1], deaf.listener.port);
  ASSERT_TRUE(hearing) << hearing.error().describe();
  const auto begin = std::chrono::steady_clock::now();
  const auto socket = connect_to("", deaf.listener.port, 2 * kHangLimit);
  ASSERT_TRUE(socket) << socket.error().describe();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kHangLimit) << "the first address had all the time";
}

}  // namespace
}  // namespace cohort::store
