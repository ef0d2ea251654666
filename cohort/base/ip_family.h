/// Which IP addresses may be used: IPv4's, IPv6's or both.
#pragma once

#include "cohort/base/result.h"

namespace cohort::base {

enum class IpFamily { kAny, kV4, kV6 };

/// Of COHORT_IP_FAMILY: 4, 6, or unset for either. Error: any other value.
Result<IpFamily> forced_ip_family();

/// AF_INET, AF_INET6 or AF_UNSPEC.
int socket_family(IpFamily family);

}  // namespace cohort::base
