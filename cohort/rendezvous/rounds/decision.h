/// Decides what the leader of a rendezvous does next: a pure function of the state of the nodes, the settings and the time.
/// Private to this folder.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "cohort/rendezvous/environment/settings.h"
#include "cohort/rendezvous/rounds/state.h"

namespace cohort::rendezvous {

struct Decision {
  /// The beginning or end of a round to announce. If absent, nothing changes.
  std::optional<News> news;
  /// The reason: "2 of 3 nodes have arrived (node0, node1); waiting for 1 more".
  std::string why;
  /// The time at which the decision changes without other events.
  std::optional<Clock::time_point> until;
};

Decision decide(const State& state, const Settings& settings, Clock::time_point now);
/// Begins and ends the last call. Must be called before decide() whenever the state has changed.
void note_time(State* state, const Settings& settings, Clock::time_point now);

/// Returns the members in the order of the ranks they get. Pure.
std::vector<Member> order_by_rank(std::vector<Member> members, const std::optional<RoundRecord>& before,
                                  bool stable_ranks);
/// Replaces the address of nodes on the store's own host, which know themselves as 127.0.0.1 only, with the address under which
/// others reached the store.
void replace_loopback_addresses(std::vector<Member>* members);

}  // namespace cohort::rendezvous
