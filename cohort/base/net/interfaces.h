/// This host's network interfaces, and which of their addresses others may use.
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
  /// Numeric, IPv4 first; link-local IPv6 addresses carry their scope ("fe80::1%eth0") and come last.
  std::vector<std::string> addresses;

  bool is_usable() const { return is_up && !addresses.empty(); }
  std::optional<std::string> first_address(IpFamily family) const;
};

/// In the kernel's order.
std::vector<Interface> list_interfaces();
/// "lo (127.0.0.1, ::1), eth0 (10.0.0.1), eth1 (down)"
std::string describe_interfaces(const std::vector<Interface>& interfaces);
/// As describe_interfaces, of those that other hosts may reach; "none" if there is none.
std::string describe_reachable_interfaces(const std::vector<Interface>& interfaces);
/// Of one of the interfaces, or any IPv4 loopback address while a loopback interface is up.
bool is_own_address(const std::string& address, const std::vector<Interface>& interfaces);

/// The first address of an interface that is up; loopback ones come first or last.
std::optional<std::string> any_address(IpFamily family, const std::vector<Interface>& interfaces, bool loopback_first);
/// The first of `preferred` that is this host's own, else a loopback address, else any; "" if it has none of the family.
std::string choose_own_address(const std::vector<std::string>& preferred, IpFamily family,
                               const std::vector<Interface>& interfaces);

/// Numeric addresses of all interfaces that are up, loopback ones included; IPv4 first, link-local ones last.
std::vector<std::string> own_addresses();
/// This host's address on the way to `host`, or the first that others may reach it by; numeric.
std::string address_towards(const std::string& host, int port, IpFamily family);
/// IPv4, unless `family` is kV6; a loopback address where there is no other.
std::string reachable_address(IpFamily family);

}  // namespace cohort::base
