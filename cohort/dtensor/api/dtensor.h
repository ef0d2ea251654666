/// DTensor: a tensor of which each rank of a mesh has a part, and which LibTorch's functions take as if it were whole.
///
///     DTensor weight = distribute_tensor(whole, mesh, {Shard(0)});     // each rank gets its rows
///     at::Tensor y = at::linear(x, weight).relu();                     // one process's code; x: all ranks have it
///     DTensor(y).placements();                                         // {Shard(1)}: nothing had to be exchanged
///     at::Tensor all = DTensor(y).full_tensor();
///
/// It is an at::Tensor, made of an ordinary TensorImpl below autograd: nn modules, optimizers and backward() know nothing of
/// it. A
/// DTensor among the arguments makes the result one; an operation's sharding rule says how the ranks do it together, and moves
/// arguments where they have to lie otherwise (comm_counts.h counts that and tells it).
///
/// Plain tensors beside DTensors count as whole on all ranks, where Python has an error; one that requires a gradient is an
/// error.
/// An operation without a rule is an error that names it: nothing is gathered behind your back. Reading data is one, too.
/// A Partial stays one through sums and products by numbers (lazily), and is reduced when an operation needs its values: once, as
/// the result is kept with it until one of both is written.
/// A view whose cut cannot be kept is gathered, and then shares no memory with what it views.
/// Random numbers, dropout among them, are drawn whole by every rank from LibTorch's generator: ranks must have the same seed.
///
/// Collective: whatever communicates, so that every rank of the mesh makes the same calls in the same order. On a rank that the
/// mesh does not have, DTensors can be made, with no elements, but not calculated with.
/// DTensors need a dispatch key of LibTorch that nobody else may use: the first one throws c10::NotImplementedError if it is not
/// free, all else in the library works. Follows torch/distributed/tensor/_api.py of PyTorch 2.13.
/// Arguments of autograd::Function::apply must be of the type at::Tensor, as it takes others for constants.
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
  /// Compares shapes of the ranks, and gives replicas the values of the first rank of each axis. Communicates.
  bool run_check = false;
  /// The whole's, both or neither (c10::Error); without them every rank's part has the same size.
  std::vector<int64_t> shape = {};
  std::vector<int64_t> stride = {};
  /// How the gradient of `local` lies. Default: as the tensor, whole where that is Partial.
  std::optional<Placements> grad_placements = {};
};

struct RedistributeOptions {
  /// In which dtype forward communicates, and that of the result. Default: the tensor's.
  std::optional<at::ScalarType> forward_dtype = {};
  /// In which dtype backward communicates. Default: the tensor's; the gradient always has that.
  std::optional<at::ScalarType> backward_dtype = {};
};

class COHORT_API DTensor : public at::Tensor {
 public:
  /// The same tensor by its other name. Throws c10::TypeError for a plain or undefined tensor.
  explicit DTensor(at::Tensor tensor);
  /// Of this rank's part and its description, as to_local() and spec() give them. A leaf that shares the part's memory, and
  /// requires a gradient if the part does.
  /// Throws c10::ValueError if the part has another shape than the spec says.
  DTensor(const at::Tensor& local, const ShardSpec& spec);

  /// Of parts that the ranks have. Shares memory with `local`, to which gradients flow back.
  /// Throws what ShardSpec throws; c10::Error if only one of shape and stride is given, or run_check finds other shapes.
  static DTensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                            const FromLocalOptions& options = {});

  /// This rank's part, of a Partial its summand. Shares memory; but a Partial that an operation made gives a copy, as all ranks
  /// remember what it adds up to. Who writes it, writes it on all ranks. Gradients flow back: in `grad_placements`, by default
  /// as the tensor lies, whole where that is Partial.
  at::Tensor to_local(const std::optional<Placements>& grad_placements = {}) const;
  /// In other placements on the same mesh, by all-gather, all-reduce, reduce-scatter, all-to-all or without communication.
  /// Gradients flow back by the opposite moves, to any order.
  /// Throws c10::ValueError for another number of placements, c10::Error to make a Partial of what is none.
  DTensor redistribute(const Placements& placements, const RedistributeOptions& options = {}) const;
  /// All of it, on all ranks. Gradients flow back; `grad_placements`: how the result's gradients lie, by default whole.
  at::Tensor full_tensor(const std::optional<Placements>& grad_placements = {}) const;

  const Placements& placements() const;
  const DeviceMesh& device_mesh() const;
  ShardSpec spec() const;
  /// As Python writes it, with this rank's part. (Printing the at::Tensor is an error.)
  std::string to_string() const;
};

/// False for an undefined tensor.
COHORT_API bool is_dtensor(const at::Tensor& tensor);

/// Collective over the mesh: every rank calls it with a leaf of the same shape and dtype, of which the values count on the
/// source: the rank that is number `src_data_rank` in the group of every axis. Without one (nullopt) all ranks have the same
/// values: each keeps its part, nothing is sent. Without placements the tensor is replicated. The result is a leaf that
/// requires a gradient if `tensor` does. A DTensor that lies so on `mesh` already is given back.
/// A tensor that is elsewhere is moved to the mesh's type of device first. As in PyTorch parts are contiguous, and a tensor
/// that is replicated on the way is overwritten with the source's values in place if it is contiguous. Partial("sum") divides
/// by the number of ranks.
/// Throws c10::Error for a tensor that is no leaf; c10::ValueError for a number of placements that is not the mesh's, for a
/// DTensor that lies otherwise, and for Partials of "product" and bits, which have no inverse; c10::IndexError for dims that
/// the tensor does not have.
COHORT_API DTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                                     const Placements& placements = {}, std::optional<int> src_data_rank = 0);

inline std::ostream& operator<<(std::ostream& out, const DTensor& tensor) { return out << tensor.to_string(); }

}  // namespace cohort
