/// Which of this host's network interfaces Gloo and NCCL use.
///
/// Follows torch/csrc/distributed/c10d/ProcessGroupGloo.cpp for GLOO_SOCKET_IFNAME and the default address, and NCCL's
/// documentation for NCCL_SOCKET_IFNAME. Checks are pure functions of the interfaces given.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/net/interfaces.h"

namespace cohort::job {

/// The addresses Gloo listens on: those of the interfaces in `names` (comma list, as in GLOO_SOCKET_IFNAME); without
/// names the first of `host_addresses` (what the host name resolves to) that is this host's own, else a loopback address.
/// Error: an interface that does not exist, is down or has no address (of the family), naming the existing ones.
base::Result<std::vector<std::string>> choose_gloo_addresses(const std::string& names, base::IpFamily family,
                                                             const std::vector<base::Interface>& interfaces,
                                                             const std::vector<std::string>& host_addresses);
/// The same from this host's state: GLOO_SOCKET_IFNAME, COHORT_IP_FAMILY, interfaces and host name.
base::Result<std::vector<std::string>> gloo_addresses();

/// Checks the value of NCCL_SOCKET_IFNAME: a comma list of prefixes, "=" before it for exact names, "^" for exclusion.
/// Error: no interface that is up and has an address remains, naming the existing ones. An empty value is fine.
base::Result<void> check_nccl_interface(const std::string& value, const std::vector<base::Interface>& interfaces);

}  // namespace cohort::job
