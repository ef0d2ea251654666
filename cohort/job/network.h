/// Chooses the network interfaces of this host that Gloo and NCCL use.
///
/// Follows torch/csrc/distributed/c10d/ProcessGroupGloo.cpp for GLOO_SOCKET_IFNAME and the default address, and NCCL's
/// documentation for NCCL_SOCKET_IFNAME. Checks are pure functions of the given interfaces.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/net/interfaces.h"

namespace cohort::job {

/// Returns the addresses on which Gloo listens: those of the interfaces in `names` (a comma-separated list, as in
/// GLOO_SOCKET_IFNAME). Without names, returns the first of `host_addresses` (the addresses of the host name) that is this host's
/// own, else a loopback address. Returns an error, which names the existing interfaces, for an interface that does not exist, is
/// down or has no address (of the family).
base::Result<std::vector<std::string>> choose_gloo_addresses(const std::string& names, base::IpFamily family,
                                                             const std::vector<base::Interface>& interfaces,
                                                             const std::vector<std::string>& host_addresses);
/// Reads this host's state and calls the function above: GLOO_SOCKET_IFNAME, COHORT_IP_FAMILY, interfaces and host name.
base::Result<std::vector<std::string>> gloo_addresses();

/// Checks the value of NCCL_SOCKET_IFNAME: a comma-separated list of prefixes, with "=" before it for exact names, "^" for
/// exclusion. Returns an error, which names the existing interfaces, if no interface remains that is up and has an address. An
/// empty value is fine.
base::Result<void> check_nccl_interface(const std::string& value, const std::vector<base::Interface>& interfaces);

}  // namespace cohort::job
