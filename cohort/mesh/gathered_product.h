/// A product whose first factor the ranks of a group have in parts, with the gather in pieces: one is multiplied while the next
/// is on its way. Values only: autograd knows nothing of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/shard.h"

namespace cohort::mesh {

/// How positions are shared out over the ranks of a group, and in how many pieces they are gathered: at most so many, as each
/// has a position at least. Alike on all ranks.
struct GatherInPieces {
  Group group;
  std::vector<IndexRange> shares;  ///< rank by rank, in the group's order
  int64_t num_pieces;
};

/// [ranks, outer, positions, features] -> [ranks, outer, positions, outputs], where each of its rows counts by itself.
using Multiply = std::function<at::Tensor(const at::Tensor& rows)>;

struct GatheredProduct {
  at::Tensor gathered;  ///< [outer, positions, features], dense
  at::Tensor product;   ///< [outer, positions, outputs], dense
};

/// `own`: [outer, this rank's positions, features]. Its own rows are multiplied first, while the others' are on their way.
/// Collective over the group. Requires: a rank has positions.
GatheredProduct multiply_while_gathering(const GatherInPieces& how, const at::Tensor& own, const Multiply& multiply);

/// Into how many pieces to cut: COHORT_GATHER_PIECES, if that is set; else 4 of tensors on the CPU, where the host has a core for
/// every thread of its ranks (at::get_num_threads()) and one more for each rank, which is what a gather needs to go on by itself;
/// else 1. Collective, with tensors on `device`: the group's rank 0 decides.
/// Throws c10::ValueError for a variable that is no positive number.
int64_t pieces_for_cores(const Group& group, c10::DeviceType device);

}  // namespace cohort::mesh
