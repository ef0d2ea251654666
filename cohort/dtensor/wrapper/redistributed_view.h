/// Views whose base had to be redistributed for them, such as rows of a matrix that is sharded by rows. Such a view has memory of
/// its own, but behaves like a view of the base: a write to one reaches the other.
///
/// A write to the view is copied to the base at once, mostly without communication. A write to the base is copied to the view
/// when the view is next used, if the base's version shows that there was one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

struct RedistributedView {
  /// The base's local tensor, layout and global sizes; and the RedistributedView of the base, if that is a view itself.
  at::Tensor base;
  LayoutPtr layout;
  std::vector<int64_t> sizes;
  std::shared_ptr<RedistributedView> outer = {};
  /// The base's elements, in their order, in the placements that the operation needed. The view has this memory. Undefined if the
  /// view has a copy of unknown elements.
  at::Tensor redistributed;
  Placements placements;
  uint32_t version = 0;  ///< the version of `base` when both were equal
};

/// Notes how an operation has made `view` from `tensor`. `redistributed`: the tensor's local tensor as the operation got it, in
/// `placements`. `keeps_order`: the view has the same elements in the same order.
void note_redistributed_view(const at::Tensor& view, const at::Tensor& tensor, const at::Tensor& redistributed,
                             const Placements& placements, bool keeps_order);
/// Updates a view from its base, if that was written. Call it before any use of `data`. Collective if there was a write.
void follow_tensor(const DTensorData& data);
/// Throws c10::NotImplementedError, with the operation's name, for a view whose writes cannot be copied to its base.
void check_can_be_written(const DTensorData& data, const std::string& operation);
/// Copies a write to a view to its base. Collective if this needs communication.
void bring_to_tensor(const DTensorData& data);

}  // namespace cohort::dtensor
