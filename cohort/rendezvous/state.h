/// State: what the leader knows of the nodes, from notices, news and signs of life. Pure. Private to this folder.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "cohort/rendezvous/records.h"

namespace cohort::rendezvous {

using Clock = std::chrono::steady_clock;

struct KnownNode {
  Member member;
  /// The last round it was in; the first one it is ready for.
  int member_of = -1;
  int ready_for = 0;
  int done_in = -1;
  bool has_gone = false;
  /// No sign of life for too long.
  bool is_silent = false;
};

struct State {
  std::map<NodeId, KnownNode> nodes;
  /// The last one.
  std::optional<RoundRecord> round;
  std::set<NodeId> member_ids;
  /// Of `round`; nothing while it runs.
  std::optional<OverRecord> over;
  /// Since when there are enough nodes for the next round.
  std::optional<Clock::time_point> enough_since;

  /// `place`: of the notice in its list.
  void take(const Notice& notice, NodeId place);
  void take(const News& news);

  int next_round() const { return round ? round->number + 1 : 0; }
  bool is_running() const { return round && !over; }
  bool is_member(NodeId id) const { return member_ids.count(id) > 0; }
  bool is_alive(NodeId id) const;
  /// Ready for the next round.
  bool is_waiting(NodeId id) const;
};

}  // namespace cohort::rendezvous
