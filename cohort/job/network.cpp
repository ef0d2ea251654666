#include "cohort/job/network.h"

#include <fmt/format.h>
#include <algorithm>

#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"

namespace cohort::job {
namespace {

using base::Interface;
using base::IpFamily;

base::Result<std::string> address_of(const std::string& name, IpFamily family,
                                     const std::vector<Interface>& interfaces) {
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& each) { return each.name == name; });
  const char* problem = nullptr;
  if (found == interfaces.end()) {
    problem = "does not exist";
  } else if (!found->is_up) {
    problem = "is down";
  } else if (found->addresses.empty()) {
    problem = "has no address";
  } else if (!found->first_address(family)) {
    problem = family == IpFamily::kV4 ? "has no IPv4 address (COHORT_IP_FAMILY=4)"
                                      : "has no IPv6 address (COHORT_IP_FAMILY=6)";
  }
  if (!problem) return *found->first_address(family);
  return base::Error(fmt::format("GLOO_SOCKET_IFNAME: interface \"{}\" {}", name, problem))
      .with_hint("this host's interfaces: " + base::describe_interfaces(interfaces));
}

}  // namespace

base::Result<std::vector<std::string>> choose_gloo_addresses(const std::string& names, IpFamily family,
                                                             const std::vector<Interface>& interfaces,
                                                             const std::vector<std::string>& host_addresses) {
  std::vector<std::string> chosen;
  if (!names.empty()) {
    for (const auto& name : base::split(names, ',')) {
      auto address = address_of(base::trim(name), family, interfaces);
      if (!address) return address.error();
      chosen.push_back(*address);
    }
    return chosen;
  }
  for (const auto& address : host_addresses) {
    if (base::is_of_family(address, family) && base::is_own_address(address, interfaces)) return std::vector{address};
  }
  // As in PyTorch: if the host name has no address of this host, a loopback address, which is right for ranks of one host.
  const auto address = family == IpFamily::kAny ? std::optional<std::string>("127.0.0.1")
                                                : base::any_address(family, interfaces, /*loopback_first=*/false);
  if (address) return std::vector{*address};
  const int number = family == IpFamily::kV4 ? 4 : 6;
  return base::Error(
             fmt::format("COHORT_IP_FAMILY={} asks for an IPv{} address, and this host has none", number, number))
      .with_hint("this host's interfaces: " + base::describe_interfaces(interfaces));
}

base::Result<std::vector<std::string>> gloo_addresses() {
  const auto family = base::forced_ip_family();
  if (!family) return family.error();
  const auto host_addresses = base::resolve(base::host_name(), IpFamily::kAny);
  return choose_gloo_addresses(base::get_env("GLOO_SOCKET_IFNAME").value_or(""), *family, base::list_interfaces(),
                               host_addresses ? *host_addresses : std::vector<std::string>{});
}

base::Result<void> check_nccl_interface(const std::string& value, const std::vector<Interface>& interfaces) {
  if (value.empty()) return {};
  const bool excludes = value.front() == '^';
  auto rest = value.substr(excludes ? 1 : 0);
  const bool is_exact = rest.starts_with('=');
  if (is_exact) rest = rest.substr(1);
  const auto names = base::split(rest, ',');
  const auto is_named = [&](const Interface& each) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return is_exact ? each.name == name : each.name.starts_with(name);
    });
  };
  if (std::any_of(interfaces.begin(), interfaces.end(),
                  [&](const Interface& each) { return each.is_usable() && is_named(each) != excludes; })) {
    return {};
  }
  const bool exists = std::any_of(interfaces.begin(), interfaces.end(),
                                  [&](const Interface& each) { return is_named(each) != excludes; });
  return base::Error(fmt::format("NCCL_SOCKET_IFNAME=\"{}\" {}", value,
                                 exists ? "leaves only interfaces that are down or have no address"
                                        : "leaves no interface of this host"))
      .with_hint("this host's interfaces: " + base::describe_interfaces(interfaces));
}

}  // namespace cohort::job
