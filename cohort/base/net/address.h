/// IP addresses: the families that may be used, the numeric form ("10.0.0.1", "fe80::1%eth0"), and the addresses of a name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

struct addrinfo;
struct sockaddr;

namespace cohort::base {

enum class IpFamily { kAny, kV4, kV6 };

/// Reads COHORT_IP_FAMILY: 4, 6, or unset for either. Any other value is an error.
Result<IpFamily> forced_ip_family();

/// Returns AF_INET, AF_INET6 or AF_UNSPEC.
int socket_family(IpFamily family);

/// Returns "IPv4" or "IPv6", by the form of a numeric address.
std::string family_of(const std::string& address);
/// True if `address` is of `family`, or `family` is kAny.
bool is_of_family(const std::string& address, IpFamily family);
/// Whether `text` is a numeric IPv6 address, with or without a %zone.
bool is_ipv6(const std::string& text);
bool is_loopback(const std::string& address);
/// Whether `address` is link-local: valid on one link only.
bool is_link_local(const std::string& address);

/// Returns the numeric form of an IPv4 or IPv6 address, without its port; empty for any other.
std::string numeric_address(const sockaddr* address);
int port_of(const sockaddr* address);
/// Returns the host as it is written before a port: "[::1]" for IPv6, other names unchanged.
std::string in_brackets(const std::string& host);
/// Returns "node0:29500", or "[::1]:29500" for an IPv6 address.
std::string host_and_port(const std::string& host, int port);

struct AddressesDeleter {
  void operator()(addrinfo* first) const;
};
using AddressList = std::unique_ptr<addrinfo, AddressesDeleter>;
/// Calls getaddrinfo for TCP. `flags` are its AI_ flags; a null `host` means this host. The error has the resolver's words.
Result<AddressList> look_up(const char* host, int port, IpFamily family, int flags = 0);

/// Returns the numeric addresses of `host` in the resolver's order, each once. The error has the resolver's words.
Result<std::vector<std::string>> resolve(const std::string& host, IpFamily family);
/// Whether only `family` keeps `host` from resolving: it has addresses, but none of that family.
bool lacks_family(const std::string& host, IpFamily family);

}  // namespace cohort::base
