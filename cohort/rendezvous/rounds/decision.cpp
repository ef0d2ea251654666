#include "cohort/rendezvous/rounds/decision.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <tuple>

#include "cohort/base/net/address.h"
#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using Reason = RoundOver::Reason;

constexpr size_t kMostNames = 8;

// Not copied: the leader checks all nodes whenever one of a thousand has arrived.
using Members = std::vector<const Member*>;

Members pointers_to(const std::vector<Member>& members) {
  Members pointers;
  for (const auto& member : members) pointers.push_back(&member);
  return pointers;
}

std::vector<Member> copies_of(const Members& pointers) {
  std::vector<Member> members;
  for (const auto* member : pointers) members.push_back(*member);
  return members;
}

std::string names_of(const Members& members, const Members& among) {
  std::vector<std::string> names;
  for (const auto* member : members) {
    if (names.size() == kMostNames) {
      names.push_back(fmt::format("and {} more", members.size() - kMostNames));
      break;
    }
    names.push_back(name_of(*member, among));
  }
  return base::join(names, ", ");
}

std::string count_of_nodes(size_t count) { return fmt::format("{} node{}", count, count == 1 ? "" : "s"); }

/// The nodes that may take part in the next round.
struct Candidates {
  Members ready;
  /// Nodes of the last round that are alive but not ready yet; their places are kept.
  Members expected;
  /// Nodes without a place.
  Members spares;
  Members all() const {
    auto members = ready;
    members.insert(members.end(), expected.begin(), expected.end());
    members.insert(members.end(), spares.begin(), spares.end());
    return members;
  }
};

Candidates find_candidates(const State& state, const Settings& settings) {
  Candidates found;
  for (const auto& [id, node] : state.nodes) {
    if (!state.is_member(id) || !state.is_alive(id)) continue;
    (state.is_waiting(id) ? found.ready : found.expected).push_back(&node.member);
  }
  for (const auto& [id, node] : state.nodes) {
    if (state.is_member(id) || !state.is_waiting(id)) continue;
    const bool has_place = found.ready.size() + found.expected.size() < static_cast<size_t>(settings.max_nodes);
    (has_place ? found.ready : found.spares).push_back(&node.member);
  }
  return found;
}

// After a worker's failure there is no last call: only nodes of the last round are waited for. A node that arrives late begins
// another round.
bool needs_no_last_call(const State& state) { return state.over && state.over->reason == Reason::kWorkerFailed; }

RoundRecord begin_round(const State& state, const Settings& settings, std::vector<Member> members) {
  RoundRecord round;
  round.number = state.next_round();
  const bool is_restart = state.over && state.over->reason == Reason::kWorkerFailed;
  round.restart_count = (state.round ? state.round->restart_count : 0) + (is_restart ? 1 : 0);
  replace_loopback_addresses(&members);
  round.members = order_by_rank(std::move(members), state.round, settings.stable_ranks);
  round.max_restarts = round.members.front().max_restarts;
  return round;
}

std::string say_waiting(const Candidates& found, const Settings& settings, size_t num_missing, const char* rest) {
  const auto wanted = settings.min_nodes == settings.max_nodes
                          ? std::to_string(settings.max_nodes)
                          : fmt::format("{} to {}", settings.min_nodes, settings.max_nodes);
  auto text =
      fmt::format("{} of {} nodes {} arrived", found.ready.size(), wanted, found.ready.size() == 1 ? "has" : "have");
  if (!found.ready.empty()) text += fmt::format(" ({})", names_of(found.ready, found.all()));
  if (!found.expected.empty()) {
    return text + fmt::format("; waiting for {} to stop its workers", names_of(found.expected, found.all()));
  }
  if (num_missing > 0) text += fmt::format("; waiting for {} more", num_missing);
  return text + rest;
}

Decision gather(const State& state, const Settings& settings, Clock::time_point now) {
  auto found = find_candidates(state, settings);
  const auto num_ready = static_cast<int>(found.ready.size());
  if (num_ready >= settings.max_nodes) {
    auto why = fmt::format("all {} have arrived", count_of_nodes(found.ready.size()));
    return {begin_round(state, settings, copies_of(found.ready)), std::move(why), std::nullopt};
  }
  if (num_ready < settings.min_nodes) {
    return {std::nullopt, say_waiting(found, settings, static_cast<size_t>(settings.min_nodes - num_ready), ""),
            std::nullopt};
  }
  const bool is_complete = needs_no_last_call(state) && found.expected.empty();
  const auto last_call = state.enough_since.value_or(now) + settings.last_call_timeout;
  if (is_complete || (now >= last_call && found.expected.empty())) {
    auto why = fmt::format("{} of at most {} have arrived{}", count_of_nodes(found.ready.size()), settings.max_nodes,
                           is_complete ? "" : ", and the last call is over");
    return {begin_round(state, settings, copies_of(found.ready)), std::move(why), std::nullopt};
  }
  auto why = say_waiting(found, settings, 0, "; that is enough, but more may arrive until the last call is over");
  return {std::nullopt, std::move(why), found.expected.empty() ? std::optional(last_call) : std::nullopt};
}

OverRecord end_round(const State& state, Reason reason, std::string why, NodeId id, bool job_ends) {
  return {state.round->number, reason, std::move(why), id, job_ends};
}

bool is_done(const State& state, NodeId id) {
  const auto found = state.nodes.find(id);
  return found != state.nodes.end() && found->second.done_in == state.round->number;
}

// Returns nothing if the members' state does not end the round.
std::optional<Decision> look_at_members(const State& state, const Settings& settings) {
  const auto members = pointers_to(state.round->members);
  Members lost;
  size_t num_done = 0;
  size_t num_busy = 0;
  for (const auto* member : members) {
    if (is_done(state, member->id)) {
      ++num_done;
    } else if (state.is_alive(member->id)) {
      ++num_busy;
    } else {
      lost.push_back(member);
    }
  }
  if (num_done == members.size()) {
    std::string why = "every worker has ended with 0";
    return Decision{end_round(state, Reason::kFinished, why, -1, true), why, std::nullopt};
  }
  if (lost.empty()) return std::nullopt;
  // No node is left that could do the lost nodes' work again.
  const bool is_last = num_busy == 0 && num_done > 0;
  const bool is_static = settings.backend == Settings::Backend::kStatic;
  const bool has_gone = state.nodes.count(lost[0]->id) > 0 && state.nodes.at(lost[0]->id).has_gone;
  auto why = has_gone ? fmt::format("{} has left", names_of(lost, members))
                      : fmt::format("{} gave no sign of life for {}", names_of(lost, members),
                                    base::format_duration(settings.lost_after()));
  if (is_last) {
    why += fmt::format(" and may not have finished its work; the workers of the other {} have ended with 0",
                       num_done == 1 ? "node" : count_of_nodes(num_done));
  } else if (is_static) {
    why += "; the static rendezvous replaces no nodes";
  }
  const auto reason = has_gone ? Reason::kNodeLeft : Reason::kNodeLost;
  return Decision{end_round(state, reason, why, lost[0]->id, is_static || is_last), why, std::nullopt};
}

Decision watch(const State& state, const Settings& settings) {
  if (auto ending = look_at_members(state, settings)) return std::move(*ending);
  Members late;
  Members everyone = pointers_to(state.round->members);
  for (const auto& [id, node] : state.nodes) {
    if (state.is_member(id) || !state.is_waiting(id)) continue;
    late.push_back(&node.member);
    everyone.push_back(&node.member);
  }
  const auto room = settings.max_nodes - static_cast<int>(state.round->members.size());
  const auto running =
      fmt::format("round {} runs on {}", state.round->number, count_of_nodes(state.round->members.size()));
  if (late.empty()) return {std::nullopt, running, std::nullopt};
  const auto names = names_of(late, everyone);
  if (room <= 0 || settings.backend == Settings::Backend::kStatic) {
    return {std::nullopt, fmt::format("{}; {} {} as spare", running, names, late.size() == 1 ? "waits" : "wait"),
            std::nullopt};
  }
  auto why = fmt::format("{} {} arrived, and there is room for {}", names, late.size() == 1 ? "has" : "have", room);
  return {end_round(state, Reason::kNodesWaiting, why, late[0]->id, false), why, std::nullopt};
}

// With the static backend --node-rank decides the places.
Decision gather_static(const State& state, const Settings& settings) {
  Candidates found;
  std::set<int> missing;
  for (int rank = 0; rank < settings.max_nodes; ++rank) missing.insert(rank);
  for (const auto& [id, node] : state.nodes) {
    if (!state.is_waiting(id)) continue;
    if (missing.erase(node.member.fixed_rank) > 0) found.ready.push_back(&node.member);
  }
  const auto by_rank = [](const auto& a, const auto& b) { return a.fixed_rank < b.fixed_rank; };
  const auto by_rank_of = [](const auto* a, const auto* b) { return a->fixed_rank < b->fixed_rank; };
  std::sort(found.ready.begin(), found.ready.end(), by_rank_of);
  if (missing.empty()) {
    auto why = fmt::format("all {} have arrived", count_of_nodes(found.ready.size()));
    auto round = begin_round(state, settings, copies_of(found.ready));
    std::sort(round.members.begin(), round.members.end(), by_rank);
    round.max_restarts = round.members.front().max_restarts;
    return {std::move(round), std::move(why), std::nullopt};
  }
  auto why = say_waiting(found, settings, 0, "");
  std::vector<std::string> ranks;
  for (const auto rank : missing) {
    if (ranks.size() == kMostNames) {
      ranks.push_back(fmt::format("and {} more", missing.size() - kMostNames));
      break;
    }
    ranks.push_back(std::to_string(rank));
  }
  why += fmt::format("; waiting for --node-rank {}", base::join(ranks, ", "));
  return {std::nullopt, std::move(why), std::nullopt};
}

}  // namespace

Decision decide(const State& state, const Settings& settings, Clock::time_point now) {
  if (state.over && state.over->job_ends) return {std::nullopt, "the job has ended: " + state.over->why, std::nullopt};
  if (state.is_running()) return watch(state, settings);
  if (settings.backend == Settings::Backend::kStatic) return gather_static(state, settings);
  return gather(state, settings, now);
}

void note_time(State* state, const Settings& settings, Clock::time_point now) {
  const bool is_enough =
      !state->is_running() && find_candidates(*state, settings).ready.size() >= static_cast<size_t>(settings.min_nodes);
  if (!is_enough) {
    state->enough_since.reset();
  } else if (!state->enough_since) {
    state->enough_since = now;
  }
}

std::vector<Member> order_by_rank(std::vector<Member> members, const std::optional<RoundRecord>& before,
                                  bool stable_ranks) {
  const auto key = [](const Member& member) { return std::tie(member.sort_name, member.node.pid, member.id); };
  std::sort(members.begin(), members.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (!stable_ranks || !before) return members;
  // Nodes that stay keep their places, except those whose place is beyond the end: they and new nodes fill the gaps in order.
  std::vector<Member> ordered(members.size());
  std::vector<bool> is_taken(members.size(), false);
  std::vector<Member> others;
  for (auto& member : members) {
    const auto was = std::find_if(before->members.begin(), before->members.end(),
                                  [&](const auto& each) { return each.id == member.id; });
    const auto rank = static_cast<size_t>(was - before->members.begin());
    if (rank < members.size()) {
      ordered[rank] = std::move(member);
      is_taken[rank] = true;
    } else {
      others.push_back(std::move(member));
    }
  }
  size_t rank = 0;
  for (auto& member : others) {
    while (is_taken[rank]) ++rank;
    ordered[rank] = std::move(member);
    is_taken[rank] = true;
  }
  return ordered;
}

void replace_loopback_addresses(std::vector<Member>* members) {
  const auto from_elsewhere = std::find_if(members->begin(), members->end(), [](const auto& member) {
    return !base::is_loopback(member.node.address) && !member.store_address.empty() &&
           !base::is_loopback(member.store_address);
  });
  if (from_elsewhere == members->end()) return;
  const auto address = from_elsewhere->store_address;
  for (auto& member : *members) {
    if (base::is_loopback(member.node.address)) member.node.address = address;
  }
}

}  // namespace cohort::rendezvous
