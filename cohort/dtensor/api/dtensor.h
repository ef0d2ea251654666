/// DTensor: a tensor of which each rank of a mesh has a local tensor. LibTorch's functions take it like the full tensor.
///
///     DTensor weight = distribute_tensor(full, mesh, {Shard(0)});      // each rank gets its rows
///     at::Tensor y = at::linear(x, weight).relu();                     // one process's code; x: all ranks have it
///     DTensor(y).placements();                                         // {Shard(1)}: no communication was needed
///     at::Tensor all = DTensor(y).full_tensor();
///
/// A DTensor is an at::Tensor, made of an ordinary TensorImpl below autograd: nn modules, optimizers and backward() need not know
/// it. A DTensor among the arguments makes the result a DTensor. The operation's sharding rule defines how the ranks run it
/// together, and redistributes arguments if necessary (comm_counts.h counts and logs this).
///
/// A plain tensor beside DTensors counts as replicated, where Python has an error; if it requires a gradient, it is an error.
/// An operation without a rule is an error that names it: nothing is gathered without your knowledge. So is reading data.
/// A Partial stays a Partial through sums and products with numbers (lazily). An operation that needs its values reduces it,
/// once: the result is kept with the tensor until either is written.
/// A view that cannot keep its shards is gathered, and then does not share memory with its base.
/// Every rank draws the random numbers of the full tensor, for dropout too, from LibTorch's generator: ranks need the same seed.
///
/// Collective: everything that communicates; every rank of the mesh makes the same calls in the same order. A rank outside of
/// the mesh can make DTensors, without elements, but cannot compute with them.
/// DTensors need a dispatch key of LibTorch for themselves. If another library uses the key, the first DTensor throws
/// c10::NotImplementedError; the rest of the library works. Follows torch/distributed/tensor/_api.py of PyTorch 2.13.
/// Pass arguments of autograd::Function::apply as at::Tensor: it takes other types for constants.
/// Thread-safety: as for tensors; a rank's threads must not communicate at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort {

struct FromLocalOptions {
  /// Compares the shapes of all ranks, and sets replicas to the values of the first rank of each axis. Communicates.
  bool run_check = false;
  /// Global shape and stride: both or neither (c10::Error). If empty, all ranks' local tensors have the same size.
  std::vector<int64_t> shape = {};
  std::vector<int64_t> stride = {};
  /// The placements of `local`'s gradient. If absent, the tensor's, but Replicate() instead of Partial().
  std::optional<Placements> grad_placements = {};
};

struct RedistributeOptions {
  /// The dtype in which forward communicates, and of the result. If absent, the tensor's.
  std::optional<at::ScalarType> forward_dtype = {};
  /// The dtype in which backward communicates. If absent, the tensor's. The gradient always has the tensor's dtype.
  std::optional<at::ScalarType> backward_dtype = {};
};

class COHORT_API DTensor : public at::Tensor {
 public:
  /// Casts an at::Tensor that is a DTensor. Throws c10::TypeError for a plain or undefined tensor.
  explicit DTensor(at::Tensor tensor);
  /// Makes a DTensor of this rank's local tensor and a description, as to_local() and spec() return them. The result is a leaf
  /// that shares memory with `local`, and requires a gradient if `local` does.
  /// Throws c10::ValueError if `local` does not have the shape that the spec gives this rank.
  DTensor(const at::Tensor& local, const mesh::ShardSpec& spec);

  /// Makes a DTensor of the ranks' local tensors. Shares memory with `local`, to which gradients flow back.
  /// Throws what ShardSpec throws; c10::Error if only one of shape and stride is given, or run_check finds other shapes.
  static DTensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                            const FromLocalOptions& options = {});

  /// Returns this rank's local tensor; for a Partial, its partial value. Shares memory, except for a Partial that an operation
  /// made: then it is a copy, because all ranks keep the reduced value. If you write to the result, do so on all ranks. Gradients
  /// flow back, in `grad_placements`; if absent, in the tensor's placements, with Replicate() instead of Partial().
  at::Tensor to_local(const std::optional<Placements>& grad_placements = {}) const;
  /// Returns the tensor in other placements on the same mesh, by all-gather, all-reduce, reduce-scatter, all-to-all or without
  /// communication. Gradients flow back by the inverse redistribution, to any order.
  /// Throws c10::ValueError for another number of placements, c10::Error for Partial() if the tensor is not already Partial.
  DTensor redistribute(const Placements& placements, const RedistributeOptions& options = {}) const;
  /// Returns the full tensor, on all ranks. Gradients flow back. `grad_placements`: the placements of the result's gradient; if
  /// absent, replicated.
  at::Tensor full_tensor(const std::optional<Placements>& grad_placements = {}) const;

  const Placements& placements() const;
  const DeviceMesh& device_mesh() const;
  mesh::ShardSpec spec() const;
  /// Returns Python's text, with this rank's local tensor. (Printing the at::Tensor is an error.)
  std::string to_string() const;
};

/// Returns false for an undefined tensor.
COHORT_API bool is_dtensor(const at::Tensor& tensor);

/// Distributes a tensor. Collective over the mesh: every rank calls it with a leaf of the same shape and dtype. The values are
/// those of the source rank, which is number `src_data_rank` in the group of every axis. If `src_data_rank` is absent, all ranks
/// have the same values: each keeps its shard, without communication. If `placements` is empty, the tensor is replicated. The
/// result is a leaf that requires a gradient if `tensor` does. A DTensor with these placements on `mesh` is returned as it is.
/// A tensor on another device is first moved to the mesh's device type. As in PyTorch, shards are contiguous, and a contiguous
/// tensor that is replicated on the way is overwritten in place with the source's values. Partial("sum") divides by the number of
/// ranks.
/// Throws c10::Error for a tensor that is not a leaf; c10::ValueError if the mesh needs another number of placements, for a
/// DTensor with other placements, and for Partials of "product" and bits, which have no inverse; c10::IndexError for dims that
/// the tensor does not have.
COHORT_API DTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                                     const Placements& placements = {}, std::optional<int> src_data_rank = 0);

inline std::ostream& operator<<(std::ostream& out, const DTensor& tensor) { return out << tensor.to_string(); }

}  // namespace cohort
