/// A cache of redistributed operands: several operations that need the same placements share one redistribution.
///
/// The reduced value of a Partial is kept as long as the tensor: a nonlinear operation saves the tensor for backward, which needs
/// the value again. Only if operations made the tensor and wrote it, because all ranks know about those; ranks cannot know if
/// another rank has changed its own partial value.
///
/// The gathered value of a sharded tensor is kept until this thread gathers another one, or until the tensor is freed. This
/// serves operations that follow each other: query, key and value of one input, and the two products of a layer's backward. Kept
/// longer, it would defeat sequence parallelism: activations that forward has gathered would wait for backward in full size
/// instead of as shards. Backward gathers them again, as in Megatron-LM. Parameters are not kept, because optimizers may write
/// their memory without LibTorch's knowledge.
///
/// All ranks cache the same tensors, because they run the same operations in the same order. Code that writes an activation's
/// shard through to_local() must do so on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

/// Returns a DTensor's local tensor in other placements. Collective if it communicates. Other operations may share the result:
/// do not write to it or return it to the user.
at::Tensor cached_redistribution(const at::Tensor& tensor, const Placements& to);

/// Whether the cache has the full tensor of a sharded tensor.
bool is_gathered(const at::Tensor& tensor, const Placements& to);
/// Caches `local` as the result of cached_redistribution(tensor, to) for a sharded tensor. Requires: `tensor` is not a view of a
/// transposed tensor.
void note_gathered(const at::Tensor& tensor, at::Tensor local, const Placements& to);

/// The relation of a result's elements to the first operand's.
enum class ViewKind {
  kNone,        ///< other elements, or in another order
  kCopy,        ///< the same elements, in memory of its own
  kInOrder,     ///< a view of all elements, in the same order
  kTransposed,  ///< a view of all elements of two dimensions, transposed
};
/// Notes that `result` has just been made from `tensor`: it is held if that is, and a view and its base share one gathered value.
void note_view(const at::Tensor& result, const at::Tensor& tensor, ViewKind kind);

}  // namespace cohort::dtensor
