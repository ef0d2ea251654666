/// This host's network interfaces, and which of their addresses the backends use.
///
/// Follows torch/csrc/distributed/c10d/ProcessGroupGloo.cpp for GLOO_SOCKET_IFNAME and the default address, and NCCL's
/// documentation for NCCL_SOCKET_IFNAME. Checks are pure functions of the interfaces given.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/ip_family.h"
#include "cohort/base/result.h"

namespace cohort::job {

using base::IpFamily;

/// "IPv4", "IPv6" by the form of a numeric address.
std::string family_of(const std::string& address);
bool is_loopback_address(const std::string& address);
/// True if `address` is of `family`, or `family` is kAny.
bool matches(const std::string& address, IpFamily family);

struct Interface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  /// Numeric, IPv4 first; link-local IPv6 addresses carry their scope ("fe80::1%eth0") and come last.
  std::vector<std::string> addresses;
};

/// In the kernel's order.
std::vector<Interface> list_interfaces();
/// "lo (127.0.0.1, ::1), eth0 (10.0.0.1), eth1 (down)"
std::string describe_interfaces(const std::vector<Interface>& interfaces);
/// As describe_interfaces, of those that other hosts may reach; "none" if there is none.
std::string describe_reachable_interfaces(const std::vector<Interface>& interfaces);
bool is_own_address(const std::string& address, const std::vector<Interface>& interfaces);

/// The first of `preferred` that is this host's own, else a loopback address, else any; "" if it has none of the family.
std::string choose_own_address(const std::vector<std::string>& preferred, IpFamily family,
                               const std::vector<Interface>& interfaces);

/// The addresses Gloo listens on: those of the interfaces in `names` (comma list, as in GLOO_SOCKET_IFNAME); without
/// names the first of `host_addresses` (what the host name resolves to) that is this host's own, else a loopback address.
/// Error: an interface that does not exist, is down or has no address (of the family), naming the existing ones.
base::Result<std::vector<std::string>> choose_gloo_addresses(const std::string& names, IpFamily family,
                                                             const std::vector<Interface>& interfaces,
                                                             const std::vector<std::string>& host_addresses);
/// The same from this host's state: GLOO_SOCKET_IFNAME, COHORT_IP_FAMILY, interfaces and host name.
base::Result<std::vector<std::string>> gloo_addresses();

/// Checks the value of NCCL_SOCKET_IFNAME: a comma list of prefixes, "=" before it for exact names, "^" for exclusion.
/// Error: no interface that is up and has an address remains, naming the existing ones. An empty value is fine.
base::Result<void> check_nccl_interface(const std::string& value, const std::vector<Interface>& interfaces);

/// Numeric addresses of `host` in the resolver's order, each once; error with the resolver's words.
base::Result<std::vector<std::string>> resolve(const std::string& host, IpFamily family);

/// True if COHORT_IP_FAMILY is what keeps `host` from resolving: it has addresses, but none of `family`.
bool lacks_family(const std::string& host, IpFamily family);

}  // namespace cohort::job
