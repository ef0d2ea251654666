/// IP addresses: the families that may be used, their numeric form ("10.0.0.1", "fe80::1%eth0"), and what a name resolves to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

struct addrinfo;
struct sockaddr;

namespace cohort::base {

enum class IpFamily { kAny, kV4, kV6 };

/// Of COHORT_IP_FAMILY: 4, 6, or unset for either. Error: any other value.
Result<IpFamily> forced_ip_family();

/// AF_INET, AF_INET6 or AF_UNSPEC.
int socket_family(IpFamily family);

/// "IPv4", "IPv6" by the form of a numeric address.
std::string family_of(const std::string& address);
/// True if `address` is of `family`, or `family` is kAny.
bool is_of_family(const std::string& address, IpFamily family);
/// A written IPv6 address, with or without a %zone.
bool is_ipv6(const std::string& text);
bool is_loopback(const std::string& address);
/// Such an address means something on one link alone.
bool is_link_local(const std::string& address);

/// Of an IPv4 or IPv6 address, without its port; empty for any other.
std::string numeric_address(const sockaddr* address);
int port_of(const sockaddr* address);
/// What goes before a port: "[::1]", and what has no colons as it is.
std::string in_brackets(const std::string& host);

struct AddressesDeleter {
  void operator()(addrinfo* first) const;
};
using AddressList = std::unique_ptr<addrinfo, AddressesDeleter>;
/// getaddrinfo for TCP; `flags` are its AI_ ones, no host: this one. Error: the resolver's words.
Result<AddressList> look_up(const char* host, int port, IpFamily family, int flags = 0);

/// Numeric addresses of `host` in the resolver's order, each once; error with the resolver's words.
Result<std::vector<std::string>> resolve(const std::string& host, IpFamily family);
/// True if `family` is what keeps `host` from resolving: it has addresses, but none of that family.
bool lacks_family(const std::string& host, IpFamily family);

}  // namespace cohort::base
