#include "cohort/job/store_address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <regex>
#include <thread>

#include "cohort/base/file/file.h"
#include "cohort/base/net/port.h"

namespace cohort::job {
namespace {

using base::IpFamily;
using std::chrono::milliseconds;

/// Accepts connections on a port of 127.0.0.1 and gives each the same treatment, until the end.
class Server {
 public:
  enum class Manner { kSilent, kCloses, kAnswers };
  Server(Manner manner, std::string answer = "") : manner_(manner), answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void serve() {
    std::vector<base::Fd> kept;
    while (true) {
      base::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      char byte = 0;
      if (manner_ != Manner::kSilent && ::read(client.get(), &byte, 1) != 1) continue;
      if (manner_ == Manner::kAnswers) (void)base::write_all(client.get(), answer_).ok();
      if (manner_ != Manner::kCloses) kept.push_back(std::move(client));
    }
  }

  Manner manner_;
  std::string answer_;
  base::Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint16_t port_ = 0;
  std::thread thread_;
};

constexpr int kLongerThanATest = 3'600'000;

StoreSearch search_for(uint16_t port, int timeout_ms = 1500) {
  return {.host = "127.0.0.1",
          .port = port,
          .family = IpFamily::kAny,
          .timeout = milliseconds(timeout_ms),
          .who = "rank 1 of 2",
          .source = "MASTER_ADDR and MASTER_PORT"};
}

/// The error's text; host, port, times and counts become words.
std::string text_of(const StoreSearch& search) {
  const auto found = find_store(search);
  if (found) return "found " + *found;
  auto text = std::regex_replace(found.error().describe(), std::regex("1 of 2 on [^ ]+"), "1 of 2 on HOST");
  text = std::regex_replace(text, std::regex(":" + std::to_string(search.port) + "\n"), ":PORT\n");
  return std::regex_replace(text, std::regex("[0-9]+ attempts? in [0-9.]+ [mu]?s|within [0-9.]+ [mu]?s"), "T");
}

const std::string kForeignHint =
    "\n  hint: another program uses this port; choose another one for MASTER_ADDR and MASTER_PORT, the same on every "
    "rank";

TEST(StoreAddress, FindsStoresOfBothKinds) {
  for (const bool use_libuv : {true, false}) {
    c10d::TCPStoreOptions options{.port = 0, .isServer = true, .waitWorkers = false, .useLibUV = use_libuv};
    c10d::TCPStore store("127.0.0.1", options);
    EXPECT_EQ(text_of(search_for(store.getPort(), kLongerThanATest)), "found 127.0.0.1");
    store.set("key", std::vector<uint8_t>{1});
    EXPECT_TRUE(store.check({"key"}));
  }
}

TEST(StoreAddress, TheLongestTimeIsNoLimit) {
  auto search = search_for(static_cast<uint16_t>(base::reserve_port().value().port));
  search.timeout = milliseconds::max();
  std::optional<c10d::TCPStore> store;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(50));
    store.emplace("127.0.0.1",
                  c10d::TCPStoreOptions{.port = search.port, .isServer = true, .waitWorkers = false, .useLibUV = true});
  });
  EXPECT_EQ(text_of(search), "found 127.0.0.1");
  late.join();
}

TEST(StoreAddress, NobodyListensMessage) {
  const auto port = base::reserve_port().value();
  EXPECT_EQ(text_of(search_for(static_cast<uint16_t>(port.port))),
            "rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
            "  caused by: 127.0.0.1 (IPv4): Connection refused (ECONNREFUSED); T\n"
            "  hint: nothing listens there: see whether rank 0 runs on that host and whether all ranks have the same "
            "MASTER_ADDR and MASTER_PORT; if rank 0 only comes later, raise InitOptions::timeout");
}

TEST(StoreAddress, SilentServerMessage) {
  const Server server(Server::Manner::kSilent);
  EXPECT_EQ(text_of(search_for(server.port())),
            "rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
            "  caused by: 127.0.0.1 (IPv4): accepted the connection but gave no answer T; T" +
                kForeignHint);
}

TEST(StoreAddress, ClosingServerMessage) {
  const Server server(Server::Manner::kCloses);
  EXPECT_EQ(text_of(search_for(server.port())),
            "rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
            "  caused by: 127.0.0.1 (IPv4): accepted the connection and closed it without an answer; T" +
                kForeignHint);
}

TEST(StoreAddress, ForeignServerMessageComesAtOnce) {
  const Server server(Server::Manner::kAnswers, "HTTP/1.1 400 Bad\r\n");
  EXPECT_EQ(text_of(search_for(server.port(), kLongerThanATest)),
            "rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
            "  caused by: 127.0.0.1 (IPv4): answered \"HTTP/1.1 400 Bad\\x0d\\x0a\", so it is not a c10d store; T" +
                kForeignHint);
}

TEST(StoreAddress, NameThatDoesNotResolveMessage) {
  auto search = search_for(29500, 200);
  search.host = "no-such-host.invalid";
  EXPECT_EQ(text_of(search),
            "rank 1 of 2 on HOST cannot reach the store at no-such-host.invalid:PORT\n"
            "  caused by: \"no-such-host.invalid\" does not resolve to an address: Name or service not known; T\n"
            "  hint: give a name that this host can resolve, or a numeric address, in MASTER_ADDR and MASTER_PORT");
}

TEST(StoreAddress, AddressOfTheOtherFamilyMessageComesAtOnce) {
  auto search = search_for(29500, kLongerThanATest);
  search.family = IpFamily::kV6;
  EXPECT_EQ(
      text_of(search),
      "rank 1 of 2 on HOST cannot reach the store at 127.0.0.1:PORT\n"
      "  caused by: \"127.0.0.1\" does not resolve to an IPv6 address: Address family for hostname not supported; T\n"
      "  hint: unset COHORT_IP_FAMILY, or give an address of that family in MASTER_ADDR and MASTER_PORT");
}

TEST(StoreAddress, WaitsForAServerThatComesLater) {
  auto port = base::reserve_port().value();
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    c10d::TCPStoreOptions options{.port = static_cast<uint16_t>(port.port), .isServer = true, .waitWorkers = false};
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  });
  EXPECT_EQ(text_of(search_for(static_cast<uint16_t>(port.port), kLongerThanATest)), "found 127.0.0.1");
  later.join();
}

}  // namespace
}  // namespace cohort::job
