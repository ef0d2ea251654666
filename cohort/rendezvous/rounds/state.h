/// State: the leader's knowledge of the nodes, from notices, news and heartbeats. Pure. Private to this folder.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "cohort/rendezvous/rounds/records.h"

namespace cohort::rendezvous {

using Clock = std::chrono::steady_clock;

struct KnownNode {
  Member member;
  /// The last round that it was in, and the first round that it is ready for.
  int member_of = -1;
  int ready_for = 0;
  int done_in = -1;
  bool has_gone = false;
  /// Whether it has sent no heartbeat for too long.
  bool is_silent = false;
};

struct State {
  std::map<NodeId, KnownNode> nodes;
  /// The last round.
  std::optional<RoundRecord> round;
  std::set<NodeId> member_ids;
  /// The end of `round`. Absent while it runs.
  std::optional<OverRecord> over;
  /// The time since which there are enough nodes for the next round.
  std::optional<Clock::time_point> enough_since;

  /// Applies a notice; `place` is its place in the list.
  void take(const Notice& notice, NodeId place);
  void take(const News& news);

  int next_round() const { return round ? round->number + 1 : 0; }
  bool is_running() const { return round && !over; }
  bool is_member(NodeId id) const { return member_ids.count(id) > 0; }
  bool is_alive(NodeId id) const;
  /// Whether the node is ready for the next round.
  bool is_waiting(NodeId id) const;
};

}  // namespace cohort::rendezvous
