#include "cohort/base/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

int preference(const std::string& address) { return family_of(address) == "IPv4" ? 0 : is_link_local(address) ? 2 : 1; }

void sort_by_preference(std::vector<std::string>& addresses) {
  std::stable_sort(addresses.begin(), addresses.end(),
                   [](const auto& a, const auto& b) { return preference(a) < preference(b); });
}

}  // namespace

std::optional<std::string> Interface::first_address(IpFamily family) const {
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const auto& address) { return is_of_family(address, family); });
  return found == addresses.end() ? std::nullopt : std::optional(*found);
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
    if (family == AF_INET || family == AF_INET6) found->addresses.push_back(numeric_address(entry->ifa_addr));
  }
  for (auto& each : interfaces) sort_by_preference(each.addresses);
  return interfaces;
}

std::string describe_interfaces(const std::vector<Interface>& interfaces) {
  std::vector<std::string> words;
  for (const auto& each : interfaces) {
    auto state = join(each.addresses, ", ");
    if (state.empty()) state = "no address";
    if (!each.is_up) state = "down";
    words.push_back(each.name + " (" + state + ")");
  }
  return words.empty() ? "none" : join(words, ", ");
}

std::string describe_reachable_interfaces(const std::vector<Interface>& interfaces) {
  std::vector<Interface> reachable;
  for (const auto& each : interfaces) {
    if (each.is_usable() && !each.is_loopback) reachable.push_back(each);
  }
  return describe_interfaces(reachable);
}

bool is_own_address(const std::string& address, const std::vector<Interface>& interfaces) {
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& each) {
    return std::find(each.addresses.begin(), each.addresses.end(), address) != each.addresses.end() ||
           (each.is_loopback && each.is_up && is_loopback(address) && family_of(address) == "IPv4");
  });
}

std::optional<std::string> any_address(IpFamily family, const std::vector<Interface>& interfaces, bool loopback_first) {
  for (const bool loopback : {loopback_first, !loopback_first}) {
    for (const auto& each : interfaces) {
      if (!each.is_up || each.is_loopback != loopback) continue;
      if (const auto address = each.first_address(family)) return address;
    }
  }
  return std::nullopt;
}

std::string choose_own_address(const std::vector<std::string>& preferred, IpFamily family,
                               const std::vector<Interface>& interfaces) {
  for (const auto& address : preferred) {
    if (is_of_family(address, family) && is_own_address(address, interfaces)) return address;
  }
  return any_address(family, interfaces, /*loopback_first=*/true).value_or("");
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  for (const auto& each : list_interfaces()) {
    if (each.is_up) addresses.insert(addresses.end(), each.addresses.begin(), each.addresses.end());
  }
  sort_by_preference(addresses);
  return addresses;
}

std::string address_towards(const std::string& host, int port, IpFamily family) {
  const auto found = look_up(host.c_str(), port, family);
  if (!found) return reachable_address(family);
  // Sends no packet; the kernel only chooses the interface.
  const auto& first = **found;
  const Fd socket(::socket(first.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (!socket || ::connect(socket.get(), first.ai_addr, first.ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return reachable_address(family);
  }
  auto text = numeric_address(reinterpret_cast<sockaddr*>(&address));
  return is_loopback(text) ? reachable_address(family) : text;
}

std::string reachable_address(IpFamily family) {
  const auto wanted = family == IpFamily::kV6 ? IpFamily::kV6 : IpFamily::kV4;
  for (const auto& address : own_addresses()) {
    if (is_of_family(address, wanted) && !is_loopback(address) && !is_link_local(address)) return address;
  }
  return wanted == IpFamily::kV6 ? "::1" : "127.0.0.1";
}

}  // namespace cohort::base
