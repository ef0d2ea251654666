/// ShardedTensor: a tensor of which each rank of a mesh has a part. An ordinary tensor beside its description: nothing
/// is dispatched, and autograd knows nothing of it.
///
///     const auto weight = distribute_tensor(whole, mesh, {Shard(0)});   // rank 0's `whole`, each rank gets its rows
///     weight.local.mul_(2);
///     const auto whole_again = weight.full_tensor();
///
/// Follows distribute_tensor and DTensor.full_tensor of torch/distributed/tensor/_api.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort {

struct COHORT_API ShardedTensor {
  /// Of the shape spec.local_shape(); an empty tensor on a rank that the mesh does not have.
  at::Tensor local;
  ShardSpec spec;

  /// Collective over the mesh: the whole tensor, on every rank, new memory unless nothing had to be exchanged. Reduces
  /// where it is Partial, then gathers, the last axis first; parts may differ in size or be empty. Takes no part in
  /// autograd. On a rank that the mesh does not have: `local`.
  /// Throws c10::ValueError if `local` has another shape than spec says.
  at::Tensor full_tensor() const;
};

/// Collective over the mesh: every rank calls it with a tensor of the same shape and dtype, of which the values count
/// on the source: the rank that is number `src_rank` in the group of every axis. Without one (nullopt) all ranks have
/// the same values: each keeps its part, nothing is sent. A tensor that is elsewhere is moved to the mesh's type of
/// device first. As in PyTorch the parts are contiguous, a tensor that is replicated on the way is overwritten with the
/// source's values in place if it is contiguous, and `local` requires a gradient if `tensor` does. Partial("sum")
/// divides by the number of ranks.
/// Throws c10::Error for a tensor that is no leaf, c10::ValueError for a number of placements that is not the mesh's,
/// and for Partials of "product" and bits, which have no inverse; c10::IndexError for dims that the tensor does not
/// have.
COHORT_API ShardedTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                                           const Placements& placements, std::optional<int> src_rank = 0);

}  // namespace cohort
