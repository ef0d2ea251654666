/// Operands brought to where a plan wants them, once where several operations want the same.
///
/// What a Partial was reduced to is kept as long as the tensor: a nonlinear operation saves it for backward, which wants it
/// again. Only if an operation made it and all that wrote it were operations, about which ranks agree: what a rank does to its
/// summand by itself, the others cannot know.
///
/// What a cut tensor was gathered to is kept until this thread gathers another one, or the tensor goes. That serves operations
/// that follow each other: query, key and value of one input, and the two products of a layer's backward. Kept any longer it
/// would undo what sequence parallelism is for: activations that forward has gathered would wait for backward in full size,
/// where the parts do. Backward gathers them again, as Megatron-LM does. Parameters are not kept, as optimizers may write
/// their memory behind LibTorch's back.
///
/// All ranks remember the same things, as they do the same operations in the same order; whoever writes a cut tensor's part, of
/// an activation, by to_local(), does so on all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

/// The part of a DTensor in other placements than its own. Collective where it communicates. The result may be shared with
/// other operations: it must not be written, or given out.
at::Tensor remembered_move(const at::Tensor& tensor, const Placements& to);

/// Whether that is at hand for a cut tensor that is wanted whole.
bool is_gathered(const at::Tensor& tensor, const Placements& to);
/// `local` is what remembered_move(tensor, to) of a cut tensor would have been: it is remembered as such. Of a tensor that is
/// no view of a transposed one.
void note_gathered(const at::Tensor& tensor, at::Tensor local, const Placements& to);

/// What a result has of the elements of the first operand.
enum class ViewKind {
  kNone,        ///< others, or in another order
  kCopy,        ///< the same, in memory of its own
  kInOrder,     ///< a view of all, in the same order
  kTransposed,  ///< a view of all, of two dimensions, transposed
};
/// `result`, just made of `tensor`: it is held where that is, and who gathers one of a view and what it views has gathered both.
void note_view(const at::Tensor& result, const at::Tensor& tensor, ViewKind kind);

}  // namespace cohort::dtensor
