/// Whether a name means this host.
#pragma once

#include <string>
#include <vector>

namespace cohort::rendezvous {

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
