/// A matrix product whose first factor is sharded over the ranks of a group. The ranks gather it in pieces and multiply one piece
/// while the next is on its way. Autograd does not see this.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/shard.h"

namespace cohort::mesh {

/// The partition of positions over the ranks of a group, and the greatest number of pieces in which they are gathered (each
/// piece has at least one position). Equal on all ranks.
struct GatherInPieces {
  Group group;
  std::vector<IndexRange> shares;  ///< one per rank, in the group's order
  int64_t num_pieces;
};

/// Maps [ranks, outer, positions, features] to [ranks, outer, positions, outputs], each row by itself.
using Multiply = std::function<at::Tensor(const at::Tensor& rows)>;

struct GatheredProduct {
  at::Tensor gathered;  ///< [outer, positions, features], dense
  at::Tensor product;   ///< [outer, positions, outputs], dense
};

/// Gathers and multiplies. `own`: [outer, this rank's positions, features]. Multiplies this rank's rows first, while the other
/// ranks' rows are on their way. Collective over the group. Requires: at least one rank has positions.
GatheredProduct multiply_while_gathering(const GatherInPieces& how, const at::Tensor& own, const Multiply& multiply);

/// Returns the number of pieces to gather in: COHORT_GATHER_PIECES if that is set. Otherwise 4 for tensors on the CPU if the host
/// has a core for every thread of its ranks (at::get_num_threads()) and one more for each rank, because a gather needs a core to
/// make progress on its own; otherwise 1. Collective, with tensors on `device`: the group's rank 0 decides.
/// Throws c10::ValueError if the variable is not a positive number.
int64_t pieces_for_cores(const Group& group, c10::DeviceType device);

}  // namespace cohort::mesh
