/// This host as others see it: its names and addresses, and whether a name means it.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/store/socket.h"

namespace cohort::rendezvous {

/// Numeric addresses of all interfaces that are up, loopback ones included.
std::vector<std::string> own_addresses();
bool is_loopback(const std::string& address);
/// Numeric addresses of `host`, each once.
base::Result<std::vector<std::string>> resolve(const std::string& host, store::Family family);

/// This host's address on the way to `host`, or the first that others may reach it by; numeric.
std::string address_towards(const std::string& host, int port, store::Family family);
std::string reachable_address(store::Family family);

/// What `host` is to a host with these names and addresses, when it resolves to `resolved` there. Pure.
enum class Place {
  kLoopback,     ///< localhost or a loopback address: each host's own
  kHere,         ///< a name or an address of this host
  kForeignName,  ///< another name, which resolves to a loopback address here
  kElsewhere,
};
struct OwnHost {
  std::vector<std::string> names;
  std::vector<std::string> addresses;
};
OwnHost own_host();
Place find_place(const std::string& host, const std::vector<std::string>& resolved, const OwnHost& own);

}  // namespace cohort::rendezvous
