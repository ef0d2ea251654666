#include "cohort/rendezvous/rounds/state.h"

namespace cohort::rendezvous {

void State::take(const Notice& notice, NodeId place) {
  if (notice.kind == Notice::Kind::kCome) {
    auto& node = nodes[place];
    node.member = notice.member;
    node.member.id = place;
    return;
  }
  const auto found = nodes.find(notice.id);
  if (found == nodes.end()) return;
  if (notice.kind == Notice::Kind::kReady) found->second.ready_for = notice.round;
  if (notice.kind == Notice::Kind::kDone) found->second.done_in = notice.round;
  if (notice.kind == Notice::Kind::kGone) found->second.has_gone = true;
}

void State::take(const News& news) {
  if (const auto* begun = std::get_if<RoundRecord>(&news)) {
    round = *begun;
    member_ids.clear();
    for (const auto& member : begun->members) {
      member_ids.insert(member.id);
      nodes[member.id].member_of = begun->number;
    }
    over.reset();
    enough_since.reset();
  } else if (const auto* ended = std::get_if<OverRecord>(&news)) {
    // The end of a round that has already ended for another reason changes nothing.
    if (ended->job_ends || (round && ended->round == round->number && !over)) over = *ended;
  }
}

bool State::is_alive(NodeId id) const {
  const auto found = nodes.find(id);
  return found != nodes.end() && !found->second.has_gone && !found->second.is_silent;
}

bool State::is_waiting(NodeId id) const { return is_alive(id) && nodes.at(id).ready_for > nodes.at(id).member_of; }

}  // namespace cohort::rendezvous
