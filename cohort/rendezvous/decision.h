/// What the leader of a rendezvous does next: one pure function of what is known, what is wanted, and the time. Private to this
/// folder.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "cohort/rendezvous/settings.h"
#include "cohort/rendezvous/state.h"

namespace cohort::rendezvous {

struct Decision {
  /// A round begins, or is over; nothing: go on as it is.
  std::optional<News> news;
  /// "2 of 3 nodes have arrived (node0, node1); waiting for 1 more"
  std::string why;
  /// When time alone changes the decision.
  std::optional<Clock::time_point> until;
};

Decision decide(const State& state, const Settings& settings, Clock::time_point now);
/// To be called before decide(), when the state has changed: begins and ends the last call.
void note_time(State* state, const Settings& settings, Clock::time_point now);

/// The members with the ranks they get, lowest first. Pure.
std::vector<Member> order_by_rank(std::vector<Member> members, const std::optional<RoundRecord>& before,
                                  bool stable_ranks);
/// Gives nodes of the store's own host, which know themselves as 127.0.0.1 only, the address under which others reached it.
void replace_loopback_addresses(std::vector<Member>* members);

}  // namespace cohort::rendezvous
