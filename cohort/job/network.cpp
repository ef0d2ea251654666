#include "cohort/job/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include "cohort/base/env.h"
#include "cohort/base/text.h"
#include "cohort/job/peer.h"

namespace cohort::job {
namespace {

const char* in_words(IpFamily family) {
  return family == IpFamily::kV4 ? "IPv4 " : family == IpFamily::kV6 ? "IPv6 " : "";
}

std::string numeric(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

bool is_link_local(const std::string& address) { return address.find('%') != std::string::npos; }

int order(const std::string& address) { return family_of(address) == "IPv4" ? 0 : is_link_local(address) ? 2 : 1; }

std::optional<std::string> first_of(const std::vector<std::string>& addresses, IpFamily family) {
  const auto found =
      std::find_if(addresses.begin(), addresses.end(), [&](const auto& address) { return matches(address, family); });
  return found == addresses.end() ? std::nullopt : std::optional(*found);
}

base::Result<std::string> address_of(const std::string& name, IpFamily family,
                                     const std::vector<Interface>& interfaces) {
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& each) { return each.name == name; });
  const char* problem = nullptr;
  if (found == interfaces.end()) {
    problem = "does not exist";
  } else if (!found->is_up) {
    problem = "is down";
  } else if (found->addresses.empty()) {
    problem = "has no address";
  } else if (!first_of(found->addresses, family)) {
    problem = family == IpFamily::kV4 ? "has no IPv4 address (COHORT_IP_FAMILY=4)"
                                      : "has no IPv6 address (COHORT_IP_FAMILY=6)";
  }
  if (!problem) return *first_of(found->addresses, family);
  return base::Error(base::fill_in("GLOO_SOCKET_IFNAME: interface \"{}\" {}", name, problem))
      .with_hint("this host's interfaces: " + describe_interfaces(interfaces));
}

std::optional<std::string> any_address(IpFamily family, const std::vector<Interface>& interfaces, bool loopback_first) {
  for (const bool loopback : {loopback_first, !loopback_first}) {
    for (const auto& each : interfaces) {
      if (!each.is_up || each.is_loopback != loopback) continue;
      if (const auto address = first_of(each.addresses, family)) return address;
    }
  }
  return std::nullopt;
}

bool is_usable(const Interface& each) { return each.is_up && !each.addresses.empty(); }

}  // namespace

std::string family_of(const std::string& address) { return address.find(':') == std::string::npos ? "IPv4" : "IPv6"; }

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

bool matches(const std::string& address, IpFamily family) {
  return family == IpFamily::kAny || family_of(address) == (family == IpFamily::kV4 ? "IPv4" : "IPv6");
}

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const auto* entry = list; entry; entry = entry->ifa_next) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& each) { return each.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      interfaces.push_back(
          {entry->ifa_name, (entry->ifa_flags & IFF_UP) != 0, (entry->ifa_flags & IFF_LOOPBACK) != 0, {}});
      found = std::prev(interfaces.end());
    }
    if (!entry->ifa_addr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) found->addresses.push_back(numeric(entry->ifa_addr));
  }
  for (auto& each : interfaces) {
    std::stable_sort(each.addresses.begin(), each.addresses.end(),
                     [](const auto& a, const auto& b) { return order(a) < order(b); });
  }
  return interfaces;
}

std::string describe_interfaces(const std::vector<Interface>& interfaces) {
  std::vector<std::string> words;
  for (const auto& each : interfaces) {
    auto state = base::join(each.addresses, ", ");
    if (state.empty()) state = "no address";
    if (!each.is_up) state = "down";
    words.push_back(each.name + " (" + state + ")");
  }
  return words.empty() ? "none" : base::join(words, ", ");
}

std::string describe_reachable_interfaces(const std::vector<Interface>& interfaces) {
  std::vector<Interface> reachable;
  for (const auto& each : interfaces) {
    if (is_usable(each) && !each.is_loopback) reachable.push_back(each);
  }
  return describe_interfaces(reachable);
}

bool is_own_address(const std::string& address, const std::vector<Interface>& interfaces) {
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
    return std::find(each.addresses.begin(), each.addresses.end(), address) != each.addresses.end() ||
           (each.is_loopback && each.is_up && is_loopback_address(address) && family_of(address) == "IPv4");
  });
}

std::string choose_own_address(const std::vector<std::string>& preferred, IpFamily family,
                               const std::vector<Interface>& interfaces) {
  for (const auto& address : preferred) {
    if (matches(address, family) && is_own_address(address, interfaces)) return address;
  }
  return any_address(family, interfaces, /*loopback_first=*/true).value_or("");
}

base::Result<std::vector<std::string>> choose_gloo_addresses(const std::string& names, IpFamily family,
                                                             const std::vector<Interface>& interfaces,
                                                             const std::vector<std::string>& host_addresses) {
  std::vector<std::string> chosen;
  if (!names.empty()) {
    for (const auto& name : base::split(names, ',')) {
      auto address = address_of(base::trim(name), family, interfaces);
      if (!address) return address.error();
      chosen.push_back(*address);
    }
    return chosen;
  }
  for (const auto& address : host_addresses) {
    if (matches(address, family) && is_own_address(address, interfaces)) return std::vector{address};
  }
  // As in PyTorch: what the host name does not tell is a loopback address, which is right for ranks of one host.
  const auto address = family == IpFamily::kAny ? std::optional<std::string>("127.0.0.1")
                                                : any_address(family, interfaces, /*loopback_first=*/false);
  if (address) return std::vector{*address};
  return base::Error(base::fill_in("COHORT_IP_FAMILY={} asks for an {}address, and this host has none",
                                   family == IpFamily::kV4 ? 4 : 6, in_words(family)))
      .with_hint("this host's interfaces: " + describe_interfaces(interfaces));
}

base::Result<std::vector<std::string>> gloo_addresses() {
  const auto family = base::forced_ip_family();
  if (!family) return family.error();
  const auto host_addresses = resolve(host_name(), IpFamily::kAny);
  return choose_gloo_addresses(base::get_env("GLOO_SOCKET_IFNAME").value_or(""), *family, list_interfaces(),
                               host_addresses ? *host_addresses : std::vector<std::string>{});
}

base::Result<void> check_nccl_interface(const std::string& value, const std::vector<Interface>& interfaces) {
  if (value.empty()) return {};
  const bool excludes = value.front() == '^';
  auto rest = value.substr(excludes ? 1 : 0);
  const bool is_exact = rest.starts_with('=');
  if (is_exact) rest = rest.substr(1);
  const auto names = base::split(rest, ',');
  const auto is_named = [&](const Interface& each) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return is_exact ? each.name == name : each.name.starts_with(name);
    });
  };
  if (std::any_of(interfaces.begin(), interfaces.end(),
                  [&](const Interface& each) { return is_usable(each) && is_named(each) != excludes; })) {
    return {};
  }
  const bool exists = std::any_of(interfaces.begin(), interfaces.end(),
                                  [&](const Interface& each) { return is_named(each) != excludes; });
  return base::Error(base::fill_in("NCCL_SOCKET_IFNAME=\"{}\" {}", value,
                                   exists ? "leaves only interfaces that are down or have no address"
                                          : "leaves no interface of this host"))
      .with_hint("this host's interfaces: " + describe_interfaces(interfaces));
}

base::Result<std::vector<std::string>> resolve(const std::string& host, IpFamily family) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = base::socket_family(family);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return base::Error(base::fill_in("\"{}\" does not resolve to an {}address: {}", host, in_words(family),
                                     error == EAI_SYSTEM ? base::errno_text(errno) : gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const auto* entry = list; entry; entry = entry->ai_next) {
    const auto address = numeric(entry->ai_addr);
    if (address.empty() || std::find(addresses.begin(), addresses.end(), address) != addresses.end()) continue;
    addresses.push_back(address);
  }
  return addresses;
}

bool lacks_family(const std::string& host, IpFamily family) {
  return family != IpFamily::kAny && !resolve(host, family) && resolve(host, IpFamily::kAny).ok();
}

}  // namespace cohort::job
