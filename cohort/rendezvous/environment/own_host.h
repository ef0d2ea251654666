/// Tells whether a name means this host.
#pragma once

#include <string>
#include <vector>

namespace cohort::rendezvous {

/// The relation of `host` to a host with these names and addresses, on which it resolves to `resolved`. Pure.
enum class Place {
  kLoopback,     ///< localhost or a loopback address, which means each host itself
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
