#include "cohort/base/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::base {

Result<IpFamily> forced_ip_family() {
  const auto value = get_env("COHORT_IP_FAMILY").value_or("");
  if (value.empty()) return IpFamily::kAny;
  if (value == "4") return IpFamily::kV4;
  if (value == "6") return IpFamily::kV6;
  return Error(fmt::format("environment variable COHORT_IP_FAMILY=\"{}\" must be 4 or 6", value));
}

int socket_family(IpFamily family) {
  return family == IpFamily::kV4 ? AF_INET : family == IpFamily::kV6 ? AF_INET6 : AF_UNSPEC;
}

std::string family_of(const std::string& address) { return address.find(':') == std::string::npos ? "IPv4" : "IPv6"; }

bool is_of_family(const std::string& address, IpFamily family) {
  return family == IpFamily::kAny || family_of(address) == (family == IpFamily::kV4 ? "IPv4" : "IPv6");
}

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.find('%') != std::string::npos;
}

std::string numeric_address(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

int port_of(const sockaddr* address) {
  return ntohs(address->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(address)->sin6_port
                                              : reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

std::string in_brackets(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

std::string host_and_port(const std::string& host, int port) { return in_brackets(host) + ":" + std::to_string(port); }

void AddressesDeleter::operator()(addrinfo* first) const { freeaddrinfo(first); }

Result<AddressList> look_up(const char* host, int port, IpFamily family, int flags) {
  addrinfo hints{};
  hints.ai_family = socket_family(family);
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Error(error == EAI_SYSTEM ? errno_text(errno) : gai_strerror(error));
  return AddressList(found);
}

Result<std::vector<std::string>> resolve(const std::string& host, IpFamily family) {
  const auto list = look_up(host.c_str(), 0, family);
  if (!list) {
    const char* in_words = family == IpFamily::kV4 ? "IPv4 " : family == IpFamily::kV6 ? "IPv6 " : "";
    return Error(fmt::format("\"{}\" does not resolve to an {}address: {}", host, in_words, list.error().message()));
  }
  std::vector<std::string> addresses;
  for (const auto* each = list->get(); each; each = each->ai_next) {
    const auto address = numeric_address(each->ai_addr);
    if (address.empty() || std::find(addresses.begin(), addresses.end(), address) != addresses.end()) continue;
    addresses.push_back(address);
  }
  return addresses;
}

bool lacks_family(const std::string& host, IpFamily family) {
  return family != IpFamily::kAny && !resolve(host, family) && resolve(host, IpFamily::kAny).ok();
}

}  // namespace cohort::base
