/// The ranks of the workers of each node in a round, as torchrun assigns them.
#pragma once

#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

/// Ranks are numbered node by node; nodes may run different numbers of workers. Each role also has its own numbering.
struct WorldLayout {
  int num_nodes = 1;
  int node_rank = 0;
  int local_world_size = 1;
  int world_size = 1;
  /// The rank of this node's first worker, in the job and within its role.
  int first_rank = 0;
  int first_role_rank = 0;
  int role_world_size = 1;
};

WorldLayout layout_of(const rendezvous::Round& round);

}  // namespace cohort::elastic
