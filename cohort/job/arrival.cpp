#include "cohort/job/arrival.h"

#include <algorithm>
#include <map>

#include "cohort/base/address.h"
#include "cohort/base/text.h"

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

std::optional<std::string> world_size_conflict(const std::vector<Arrival>& arrivals) {
  std::map<int, std::vector<Arrival>> by_size;
  for (const auto& each : arrivals) {
    if (each.peer) by_size[each.peer->world_size].push_back(each);
  }
  if (by_size.size() < 2) return std::nullopt;
  std::string text = "[cohort] the ranks disagree on the world size";
  for (const auto& [size, ranks] : by_size) text += base::fill_in("\n  world size {}: {}", size, describe(ranks));
  return text + "\n  hint: give every rank the same WORLD_SIZE, or InitOptions::world_size";
}

std::optional<std::string> accelerator_conflict(const std::vector<Arrival>& arrivals) {
  for (auto a = arrivals.begin(); a != arrivals.end(); ++a) {
    if (!a->peer || a->peer->accelerator.empty()) continue;
    const auto b = std::find_if(std::next(a), arrivals.end(), [&](const Arrival& each) {
      return each.peer && each.peer->accelerator == a->peer->accelerator && each.peer->host == a->peer->host;
    });
    if (b == arrivals.end()) continue;
    return base::fill_in(
        "[cohort] two ranks use one accelerator, {}\n  {}\n  {}\n"
        "  hint: give each rank of a host its own device, by its LOCAL_RANK for instance",
        a->peer->accelerator, describe(*a), describe(*b));
  }
  return std::nullopt;
}

std::string announces(const Arrival& arrival) {
  return describe(arrival) + " announces " + base::join(addresses_of(arrival), ", ");
}

std::optional<std::string> loopback_conflict(const std::vector<Arrival>& arrivals) {
  for (const auto& each : arrivals) {
    const auto addresses = addresses_of(each);
    if (std::none_of(addresses.begin(), addresses.end(), base::is_loopback)) continue;
    const auto other = std::find_if(arrivals.begin(), arrivals.end(),
                                    [&](const Arrival& arrival) { return !share_loopback(each, arrival); });
    if (other == arrivals.end()) continue;
    const auto choice = each.peer ? each.peer->interfaces : "those that `ip addr` shows";
    return base::fill_in(
        "[cohort] ranks on different hosts cannot connect: {} announces a loopback address\n  {}\n  {}\n"
        "  hint: set GLOO_SOCKET_IFNAME on {} to one of its interfaces: {}; or let its host name resolve to such an "
        "address "
        "(Debian's /etc/hosts says 127.0.1.1)",
        describe(each), announces(each), announces(*other), host_of(each), choice);
  }
  return std::nullopt;
}

std::optional<std::string> family_conflict(const std::vector<Arrival>& arrivals) {
  const Arrival* first = nullptr;
  for (const auto& each : arrivals) {
    if (addresses_of(each).empty()) continue;
    if (!first) first = &each;
    if (base::family_of(addresses_of(*first).front()) == base::family_of(addresses_of(each).front())) continue;
    return base::fill_in(
        "[cohort] ranks announce addresses of different families and cannot connect\n  {} ({})\n  {} ({})\n"
        "  hint: set COHORT_IP_FAMILY=4, or 6, on every rank, or name interfaces in GLOO_SOCKET_IFNAME",
        announces(*first), base::family_of(addresses_of(*first).front()), announces(each),
        base::family_of(addresses_of(each).front()));
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
  return base::join(words, ", ") + (rest > 0 ? base::fill_in(" and {} more", rest) : "");
}

std::string duplicate_rank_text(int rank, const std::string& first, const std::string& second) {
  return base::fill_in(
      "[cohort] two processes have rank {}\n  the first: {}\n  the second: {}\n"
      "  hint: give each process a RANK of its own; the first may be left over from an earlier run",
      rank, first, second);
}

std::optional<std::string> find_conflict(const std::vector<Arrival>& arrivals) {
  for (const auto find : {world_size_conflict, accelerator_conflict, loopback_conflict, family_conflict}) {
    if (auto conflict = find(arrivals)) return conflict;
  }
  return std::nullopt;
}

}  // namespace cohort::job
