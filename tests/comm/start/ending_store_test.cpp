// A store that ends at a moment when others come to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/net/port.h"
#include "tests/support/rank_processes.h"

namespace cohort {
namespace {

// Passes connections on, and ends the second one when it has been answered once: a store that ends between being found and
// being joined.
class EndingRelay {
 public:
  explicit EndingRelay(int target) : target_(target), thread_([this](const auto& stop) { accept_until(stop); }) {}
  int port() const { return port_.port; }
  int num_ended() const { return num_ended_; }

 private:
  void accept_until(const std::stop_token& stop) {
    EXPECT_EQ(::listen(port_.socket.get(), 8), 0);
    std::vector<std::jthread> relays;
    while (!stop.stop_requested()) {
      pollfd ready{port_.socket.get(), POLLIN, 0};
      if (::poll(&ready, 1, 10) != 1) continue;
      relays.emplace_back([this, client = base::Fd(::accept(port_.socket.get(), nullptr, nullptr)),
                           ends = relays.size() == 1](const std::stop_token& end) { relay(client.get(), ends, end); });
    }
  }

  void relay(int client, bool ends, const std::stop_token& stop) {
    const base::Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(target_)), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
    bool has_answered = false;
    while (!stop.stop_requested()) {
      pollfd ready[2] = {{client, POLLIN, 0}, {server.get(), POLLIN, 0}};
      ::poll(ready, 2, 10);
      for (const int from : {0, 1}) {
        if (ready[from].revents == 0) continue;
        if (ends && has_answered && from == 0) {
          ++num_ended_;
          return;
        }
        char bytes[4096];
        const auto count = ::read(ready[from].fd, bytes, sizeof bytes);
        if (count <= 0 || ::write(ready[1 - from].fd, bytes, static_cast<size_t>(count)) != count) return;
        has_answered = has_answered || from == 1;
      }
    }
  }

  const int target_;
  std::atomic<int> num_ended_ = 0;
  const base::PortReservation port_ = base::reserve_port().value();
  std::jthread thread_;
};

TEST(EndingStore, IsLookedForAnewWhereItEndsWhileItIsJoined) {
  const auto store = c10::make_intrusive<c10d::TCPStore>(
      "127.0.0.1", c10d::TCPStoreOptions{.port = 0, .isServer = true, .waitWorkers = false});
  const EndingRelay relay(store->getPort());
  // The worker is in start_test.cpp.
  const auto results = test::run_workers(
      "start", {.world_size = 1,
                .arguments = {"*:MASTER_PORT=" + std::to_string(relay.port()), "*:TORCHELASTIC_USE_AGENT_STORE=True"}});
  EXPECT_THAT(results[0].output, testing::EndsWith("started\n"));
  EXPECT_EQ(relay.num_ended(), 1);
}

}  // namespace
}  // namespace cohort
