#include "cohort/rendezvous/own_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cohort/base/host.h"
#include "cohort/base/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::fill_in;

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::string numeric(const sockaddr* address) {
  const auto size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  const auto length = static_cast<socklen_t>(size);
  if (getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<std::string> addresses;
  for (const auto* each = first; each; each = each->ifa_next) {
    if (!each->ifa_addr || (each->ifa_flags & IFF_UP) == 0) continue;
    const auto family = each->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) addresses.push_back(numeric(each->ifa_addr));
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1" || address.rfind("::ffff:127.", 0) == 0;
}

base::Result<std::vector<std::string>> resolve(const std::string& host, store::Family family) {
  addrinfo hints{};
  hints.ai_family = base::socket_family(family);
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  if (status != 0) return Error(fill_in("the name \"{}\" cannot be resolved: {}", host, gai_strerror(status)));
  std::vector<std::string> addresses;
  for (const auto* each = found; each; each = each->ai_next) {
    auto text = numeric(each->ai_addr);
    if (!contains(addresses, text)) addresses.push_back(std::move(text));
  }
  return addresses;
}

std::string address_towards(const std::string& host, int port, store::Family family) {
  addrinfo hints{};
  hints.ai_family = base::socket_family(family);
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return reachable_address(family);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  // Sends nothing: the kernel chooses the interface.
  const base::Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (!socket || connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return reachable_address(family);
  }
  auto text = numeric(reinterpret_cast<sockaddr*>(&address));
  return is_loopback(text) ? reachable_address(family) : text;
}

std::string reachable_address(store::Family family) {
  const bool is_v6_wanted = family == store::Family::kV6;
  for (const auto& address : own_addresses()) {
    const bool is_v6 = address.find(':') != std::string::npos;
    if (is_loopback(address) || address.rfind("fe80:", 0) == 0 || is_v6 != is_v6_wanted) continue;
    return address;
  }
  return is_v6_wanted ? "::1" : "127.0.0.1";
}

OwnHost own_host() {
  OwnHost own{{base::host_name()}, own_addresses()};
  // The full name, where the resolver knows it without asking around: /etc/hosts or DNS of the own name.
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(own.names[0].c_str(), nullptr, &hints, &found) == 0) {
    if (found->ai_canonname) own.names.emplace_back(found->ai_canonname);
    freeaddrinfo(found);
  }
  return own;
}

Place find_place(const std::string& host, const std::vector<std::string>& resolved, const OwnHost& own) {
  if (host == "localhost" || is_loopback(host)) return Place::kLoopback;
  if (contains(own.names, host)) return Place::kHere;
  const auto is_own = [&](const auto& address) { return contains(own.addresses, address) && !is_loopback(address); };
  if (std::any_of(resolved.begin(), resolved.end(), is_own)) return Place::kHere;
  if (std::any_of(resolved.begin(), resolved.end(), is_loopback)) return Place::kForeignName;
  return Place::kElsewhere;
}

}  // namespace cohort::rendezvous
