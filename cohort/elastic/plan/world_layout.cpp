#include "cohort/elastic/plan/world_layout.h"

namespace cohort::elastic {

WorldLayout layout_of(const rendezvous::Round& round) {
  const rendezvous::Node& self = round.nodes[static_cast<size_t>(round.node_rank)];
  WorldLayout layout{.num_nodes = static_cast<int>(round.nodes.size()),
                     .node_rank = round.node_rank,
                     .local_world_size = self.local_world_size,
                     .world_size = 0,
                     .role_world_size = 0};
  for (size_t i = 0; i < round.nodes.size(); ++i) {
    const rendezvous::Node& node = round.nodes[i];
    if (i == static_cast<size_t>(round.node_rank)) {
      layout.first_rank = layout.world_size;
      layout.first_role_rank = layout.role_world_size;
    }
    layout.world_size += node.local_world_size;
    if (node.role == self.role) layout.role_world_size += node.local_world_size;
  }
  return layout;
}

}  // namespace cohort::elastic
