#include "cohort/base/ip_family.h"

#include <sys/socket.h>

#include "cohort/base/env.h"
#include "cohort/base/text.h"

namespace cohort::base {

Result<IpFamily> forced_ip_family() {
  const auto value = get_env("COHORT_IP_FAMILY").value_or("");
  if (value.empty()) return IpFamily::kAny;
  if (value == "4") return IpFamily::kV4;
  if (value == "6") return IpFamily::kV6;
  return Error(fill_in("environment variable COHORT_IP_FAMILY=\"{}\" must be 4 or 6", value));
}

int socket_family(IpFamily family) {
  return family == IpFamily::kV4 ? AF_INET : family == IpFamily::kV6 ? AF_INET6 : AF_UNSPEC;
}

}  // namespace cohort::base
