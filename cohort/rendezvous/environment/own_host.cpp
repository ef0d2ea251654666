#include "cohort/rendezvous/environment/own_host.h"

#include <netdb.h>

#include <algorithm>

#include "cohort/base/net/interfaces.h"
#include "cohort/base/system/host.h"

namespace cohort::rendezvous {
namespace {

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

OwnHost own_host() {
  OwnHost own{{base::host_name()}, base::own_addresses()};
  // The full name, if the resolver knows it without asking other hosts: from /etc/hosts or DNS of its own name.
  const auto found = base::look_up(own.names[0].c_str(), 0, base::IpFamily::kAny, AI_CANONNAME);
  if (found && (*found)->ai_canonname) own.names.emplace_back((*found)->ai_canonname);
  return own;
}

Place find_place(const std::string& host, const std::vector<std::string>& resolved, const OwnHost& own) {
  if (host == "localhost" || base::is_loopback(host)) return Place::kLoopback;
  if (contains(own.names, host)) return Place::kHere;
  const auto is_own = [&](const auto& address) {
    return contains(own.addresses, address) && !base::is_loopback(address);
  };
  if (std::any_of(resolved.begin(), resolved.end(), is_own)) return Place::kHere;
  if (std::any_of(resolved.begin(), resolved.end(), base::is_loopback)) return Place::kForeignName;
  return Place::kElsewhere;
}

}  // namespace cohort::rendezvous
