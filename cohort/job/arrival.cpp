#include "cohort/job/arrival.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>

#include "cohort/base/net/address.h"
#include "cohort/base/text/text.h"

namespace cohort::job {
namespace {

constexpr size_t kMostDescribed = 8;

std::vector<std::string> addresses_of(const Arrival& arrival) {
  if (arrival.peer) return arrival.peer->addresses;
  return arrival.gloo ? std::vector{arrival.gloo->address} : std::vector<std::string>{};
}

std::string host_of(const Arrival& arrival) {
  return arrival.peer ? arrival.peer->host : arrival.gloo ? arrival.gloo->host : "";
}

// Of a Python rank only the host's name is known.
bool share_loopback(const Arrival& a, const Arrival& b) {
  if ((!a.peer && !a.gloo) || (!b.peer && !b.gloo)) return true;
  if (a.peer && b.peer) return a.peer->network_scope == b.peer->network_scope;
  return host_of(a) == host_of(b);
}

Failure refusal(std::string what, std::vector<std::string> where, std::string hint) {
  return {.kind = Failure::Kind::kArgument,
          .hint = std::move(hint),
          .what = std::move(what),
          .where = std::move(where),
          .scope = Failure::Scope::kJob};
}

std::optional<Failure> world_size_conflict(const std::vector<Arrival>& arrivals) {
  std::map<int, std::vector<Arrival>> by_size;
  for (const auto& each : arrivals) {
    if (each.peer) by_size[each.peer->world_size].push_back(each);
  }
  if (by_size.size() < 2) return std::nullopt;
  std::vector<std::string> sizes;
  for (const auto& [size, ranks] : by_size) sizes.push_back(fmt::format("world size {}: {}", size, describe(ranks)));
  return refusal("the ranks disagree on the world size", std::move(sizes),
                 "give every rank the same WORLD_SIZE, or InitOptions::world_size");
}

std::optional<Failure> accelerator_conflict(const std::vector<Arrival>& arrivals) {
  for (auto a = arrivals.begin(); a != arrivals.end(); ++a) {
    if (!a->peer || a->peer->accelerator.empty()) continue;
    const auto b = std::find_if(std::next(a), arrivals.end(), [&](const Arrival& each) {
      return each.peer && each.peer->accelerator == a->peer->accelerator && each.peer->host == a->peer->host;
    });
    if (b == arrivals.end()) continue;
    return refusal("two ranks use one accelerator, " + a->peer->accelerator, {describe(*a), describe(*b)},
                   "give each rank of a host its own device, by its LOCAL_RANK for instance");
  }
  return std::nullopt;
}

std::string announces(const Arrival& arrival) {
  return describe(arrival) + " announces " + base::join(addresses_of(arrival), ", ");
}

std::optional<Failure> loopback_conflict(const std::vector<Arrival>& arrivals) {
  for (const auto& each : arrivals) {
    const auto addresses = addresses_of(each);
    if (std::none_of(addresses.begin(), addresses.end(), base::is_loopback)) continue;
    const auto other = std::find_if(arrivals.begin(), arrivals.end(),
                                    [&](const Arrival& arrival) { return !share_loopback(each, arrival); });
    if (other == arrivals.end()) continue;
    const auto choice = each.peer ? each.peer->interfaces : "those that `ip addr` shows";
    return refusal(
        fmt::format("ranks on different hosts cannot connect: {} announces a loopback address", describe(each)),
        {announces(each), announces(*other)},
        fmt::format("set GLOO_SOCKET_IFNAME on {} to one of its interfaces: {}; or let its host name resolve to such "
                    "an address (Debian's /etc/hosts says 127.0.1.1)",
                    host_of(each), choice));
  }
  return std::nullopt;
}

std::optional<Failure> family_conflict(const std::vector<Arrival>& arrivals) {
  const Arrival* first = nullptr;
  for (const auto& each : arrivals) {
    if (addresses_of(each).empty()) continue;
    if (!first) first = &each;
    if (base::family_of(addresses_of(*first).front()) == base::family_of(addresses_of(each).front())) continue;
    const auto with_family = [](const Arrival& arrival) {
      return fmt::format("{} ({})", announces(arrival), base::family_of(addresses_of(arrival).front()));
    };
    return refusal("ranks announce addresses of different families and cannot connect",
                   {with_family(*first), with_family(each)},
                   "set COHORT_IP_FAMILY=4, or 6, on every rank, or name interfaces in GLOO_SOCKET_IFNAME");
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Arrival& arrival) {
  const auto name = "rank " + std::to_string(arrival.rank);
  if (arrival.peer) return name + " (" + describe_process(*arrival.peer) + ")";
  return arrival.gloo ? name + " (a Python process on " + arrival.gloo->host + ")" : name;
}

std::string describe(const std::vector<Arrival>& arrivals) {
  if (arrivals.empty()) return "none";
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(arrivals.size(), kMostDescribed); ++i) words.push_back(describe(arrivals[i]));
  const auto rest = arrivals.size() - words.size();
  return base::join(words, ", ") + (rest > 0 ? fmt::format(" and {} more", rest) : "");
}

Failure duplicate_rank(int rank, const std::string& first, const std::string& second) {
  return refusal(fmt::format("two processes have rank {}", rank), {"the first: " + first, "the second: " + second},
                 "give each process a RANK of its own; the first may be left over from an earlier run");
}

std::optional<Failure> find_conflict(const std::vector<Arrival>& arrivals) {
  for (const auto find : {world_size_conflict, accelerator_conflict, loopback_conflict, family_conflict}) {
    if (auto conflict = find(arrivals)) return conflict;
  }
  return std::nullopt;
}

}  // namespace cohort::job
