/// This host's network interfaces, and the addresses that other hosts may use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/net/address.h"

namespace cohort::base {

struct Interface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  /// Numeric addresses, IPv4 first. Link-local IPv6 addresses have their scope ("fe80::1%eth0") and come last.
  std::vector<std::string> addresses;

  bool is_usable() const { return is_up && !addresses.empty(); }
  std::optional<std::string> first_address(IpFamily family) const;
};

/// Lists the interfaces in the kernel's order.
std::vector<Interface> list_interfaces();
/// Returns "lo (127.0.0.1, ::1), eth0 (10.0.0.1), eth1 (down)".
std::string describe_interfaces(const std::vector<Interface>& interfaces);
/// As describe_interfaces, but only interfaces that other hosts may reach; "none" if there is none.
std::string describe_reachable_interfaces(const std::vector<Interface>& interfaces);
/// Whether `address` belongs to one of the interfaces. While a loopback interface is up, every IPv4 loopback address does.
bool is_own_address(const std::string& address, const std::vector<Interface>& interfaces);

/// Returns the first address of an interface that is up; loopback addresses come first or last.
std::optional<std::string> any_address(IpFamily family, const std::vector<Interface>& interfaces, bool loopback_first);
/// Returns the first of `preferred` that is this host's own, else a loopback address, else any; "" if the family has no address.
std::string choose_own_address(const std::vector<std::string>& preferred, IpFamily family,
                               const std::vector<Interface>& interfaces);

/// Numeric addresses of all interfaces that are up, loopback ones included; IPv4 first, link-local ones last.
std::vector<std::string> own_addresses();
/// Returns this host's numeric address on the route to `host`, else the first address that others may reach.
std::string address_towards(const std::string& host, int port, IpFamily family);
/// Returns an IPv4 address, unless `family` is kV6; a loopback address if there is no other.
std::string reachable_address(IpFamily family);

}  // namespace cohort::base
