/// Views of a tensor whose parts had to be moved for it: rows of a matrix that is cut by rows. Such a view has memory of its own,
/// but counts as one of the tensor's: what is written to the one is brought to the other.
///
/// A write to the view goes to the tensor at once, and mostly moves nothing between ranks. A write to the tensor goes to the view
/// when that is next used, if the tensor's version says that there was one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

struct MovedView {
  /// Of the tensor: its part, how that lies, the whole's sizes; and of what that in turn is a view.
  at::Tensor base;
  LayoutPtr layout;
  std::vector<int64_t> sizes;
  std::shared_ptr<MovedView> outer = {};
  /// The tensor's elements, in their order, as they had to lie. The view has this memory. Undefined if it has a copy, and
  /// nobody knows of what.
  at::Tensor moved;
  Placements placements;
  uint32_t version = 0;  ///< of `base`, when both were alike
};

/// Notes what `view` is, which an operation has made of `tensor`. `moved`: the tensor's part as the operation was given it, in
/// `placements`. `keeps_order`: the view has the same elements in the same order.
void note_moved_view(const at::Tensor& view, const at::Tensor& tensor, const at::Tensor& moved,
                     const Placements& placements, bool keeps_order);
/// Collective where it has been written to: brings a view what its tensor has. Before any use of `parts`.
void follow_tensor(const Parts& parts);
/// Throws c10::NotImplementedError, with the operation's name, for a view from which there is no way back.
void check_can_be_written(const Parts& parts, const std::string& operation);
/// Collective where parts have to be moved: brings a tensor what has been written to its view.
void bring_to_tensor(const Parts& parts);

}  // namespace cohort::dtensor
