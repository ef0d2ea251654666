#include "cohort/store/stream/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "cohort/base/net/port.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"

namespace cohort::store {
namespace {

using base::Error;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kBacklog = 4096;
/// The number of attempts to listen at a free port.
constexpr int kMaxPorts = 20;
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kLongestConnectPause{500};
constexpr milliseconds kLongestTurn{2000};

size_t size_of(const base::AddressList& list) {
  size_t count = 0;
  for (const auto* address = list.get(); address; address = address->ai_next) ++count;
  return count;
}

base::Result<base::AddressList> look_up(const std::string& host, int port, base::IpFamily family, int flags) {
  auto list = base::look_up(host.empty() ? nullptr : host.c_str(), port, family, flags);
  if (list) return list;
  return Error(fmt::format("the name \"{}\" cannot be resolved: {}", host, list.error().message()));
}

std::string name_of(const sockaddr* address) {
  const auto host = base::numeric_address(address);
  return host.empty() ? "?:?" : base::host_and_port(host, base::port_of(address));
}

void set_port(sockaddr* address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

void switch_on(int socket, int level, int option) {
  const int on = 1;
  setsockopt(socket, level, option, &on, sizeof(on));
}

Error cannot_listen(const addrinfo& address, int port, int number) {
  auto text = fmt::format("cannot listen on {}: {}", name_of(address.ai_addr), base::errno_text(number));
  if (number != EADDRINUSE) return Error(std::move(text));
  const auto use = base::look_up_port(port);
  if (use.holder) text += fmt::format("; it is held by process {} ({})", use.holder->pid, use.holder->command);
  return Error(std::move(text)).with_hint("choose another port, or 0 for a free one");
}

base::Result<Listener> listen_at(const addrinfo& address, int port) {
  base::Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return cannot_listen(address, port, errno);
  switch_on(socket.get(), SOL_SOCKET, SO_REUSEADDR);
  // Each family has its own socket.
  if (address.ai_family == AF_INET6) switch_on(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  set_port(address.ai_addr, port);
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 || listen(socket.get(), kBacklog) != 0) {
    return cannot_listen(address, port, errno);
  }
  const int bound = base::bound_port(socket.get());
  return Listener{std::move(socket), bound};
}

// Waits for the connection that connect() began. Returns an errno, or 0 for success.
int finish_connecting(int socket, Clock::time_point deadline) {
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int number = 0;
  socklen_t size = sizeof(number);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &number, &size);
  return number;
}

// If no process listens at a port that the kernel may give to a client, the kernel at some point gives it to a client that
// connects to it, and connects that client with itself.
bool is_own_end(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  return getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
         std::memcmp(&own, &peer, own_size) == 0;
}

// Shares the time among the addresses of a host, so that an address that drops packets does not hide the others.
Clock::time_point end_of_turn(size_t num_addresses_left, bool is_only, Clock::time_point deadline) {
  if (is_only) return deadline;
  const auto now = Clock::now();
  const auto share = std::max(deadline - now, Clock::duration::zero()) / static_cast<int>(num_addresses_left);
  return now + std::min<Clock::duration>(share, kLongestTurn);
}

bool is_taken(const Error& error) { return error.message().find("EADDRINUSE") != std::string::npos; }

base::Result<std::vector<Listener>> listen_once(const std::string& host, int port, base::IpFamily family) {
  const auto list = look_up(host, port, family, AI_PASSIVE);
  if (!list) return Error("cannot listen on " + base::host_and_port(host, port)).caused_by(list.error());
  std::vector<Listener> listeners;
  std::optional<Error> first_error;
  for (const auto* address = list->get(); address; address = address->ai_next) {
    auto listener = listen_at(*address, port);
    if (!listener) {
      // A machine may have no IPv6 although the resolver returns IPv6 addresses.
      if (!first_error) first_error = listener.error();
      if (is_taken(listener.error())) break;
      continue;
    }
    port = listener->port;
    listeners.push_back(std::move(*listener));
    if (listeners.size() > 1 && first_error) break;
  }
  if (listeners.empty() || (first_error && is_taken(*first_error))) {
    return first_error.value_or(Error(fmt::format("the name \"{}\" has no address", host)));
  }
  return listeners;
}

}  // namespace

base::Result<std::vector<Listener>> listen_on(const std::string& host, int port, base::IpFamily family) {
  auto listeners = listen_once(host, port, family);
  // A port that is free in one family may be in use in the other. If any port will do, others are tried.
  for (int i = 0; i < kMaxPorts && port == 0 && !listeners && is_taken(listeners.error()); ++i) {
    listeners = listen_once(host, port, family);
  }
  return listeners;
}

int poll_until(std::span<pollfd> fds, Clock::time_point deadline) {
  int ready = 0;
  do {
    ready = poll(fds.data(), fds.size(), base::milliseconds_until(deadline));
  } while (ready == 0 ? Clock::now() < deadline : ready < 0 && errno == EINTR);
  return ready;
}

bool wait_for(int socket, short events, Clock::time_point deadline) {
  pollfd poll_fd{socket, events, 0};
  return poll_until({&poll_fd, 1}, deadline) > 0;
}

Attempt connect_once(const addrinfo& address, Clock::time_point deadline) {
  base::Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {{}, errno};
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    const int error = errno == EINPROGRESS ? finish_connecting(socket.get(), deadline) : errno;
    if (error != 0) return {{}, error};
  }
  if (is_own_end(socket.get())) return {{}, ECONNREFUSED};
  fcntl(socket.get(), F_SETFL, 0);
  switch_on(socket.get(), IPPROTO_TCP, TCP_NODELAY);
  switch_on(socket.get(), SOL_SOCKET, SO_KEEPALIVE);
  return {std::move(socket), 0};
}

base::Result<base::Fd> connect_to(const std::string& host, int port, milliseconds timeout, base::IpFamily family) {
  const auto deadline = base::deadline_after(timeout);
  std::optional<Error> last;
  auto pause = kFirstPause;
  do {
    if (last) std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
    pause = std::min(pause * 2, kLongestConnectPause);
    const auto list = look_up(host, port, family, 0);
    if (!list) {
      last = list.error();
      continue;
    }
    const auto num_addresses = size_of(*list);
    auto num_left = num_addresses;
    for (const auto* address = list->get(); address; address = address->ai_next) {
      auto attempt = connect_once(*address, end_of_turn(num_left--, num_addresses == 1, deadline));
      if (attempt.socket) return std::move(attempt.socket);
      last = Error(fmt::format("{}: {}", name_of(address->ai_addr), base::errno_text(attempt.error)));
    }
  } while (Clock::now() < deadline);
  return Error(fmt::format("cannot connect to {} within {}", base::host_and_port(host, port),
                           base::format_duration(timeout)))
      .caused_by(*last)
      .with_hint("see whether the store runs there, and whether a firewall or another address family is in the way");
}

void watch_peer(int socket) {
  const auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 20);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::string peer_name(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  return name_of(reinterpret_cast<sockaddr*>(&address));
}

}  // namespace cohort::store
