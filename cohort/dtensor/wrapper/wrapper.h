/// The tensor that stands for one in parts: an ordinary TensorImpl with the whole's sizes, no data, and beside it, in its
/// BackendMeta, this rank's part and the placements.
///
/// No subclass of TensorImpl, so that Tensor::set_data turns the parameter of an unmodified module into one in place.
///
/// All wrappers of a device share one storage. So autograd never takes one for its own and adds to it in place: several may share
/// one local tensor, and the sum may be cheaper in other placements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/dtensor/wrapper/dispatch_key.h"
#include "cohort/dtensor/wrapper/layout.h"
#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::dtensor {

/// What a tensor had to be moved to, for operations that want the same (dispatch/remembered_moves.h).
struct Remembered {
  at::Tensor local;  ///< undefined: nothing is known
  Placements placements;
  /// Of the wrapper and of its part, by which writing shows.
  uint32_t version = 0, local_version = 0;
  /// Where it was calculated; another stream would not wait for it. Nothing: on the CPU.
  std::optional<c10::Stream> stream = {};
};

struct MovedView;

/// Where and in which placements the tensor lies never changes once the wrapper exists: what is written in place goes into
/// `local`. What is `mutable` is learnt of it later, by the thread that computes with it.
struct Parts final : c10::BackendMeta {
  Parts(at::Tensor local, LayoutPtr layout);
  at::Tensor local;  ///< never requires a gradient; an empty one on a rank that the mesh does not have
  LayoutPtr layout;
  const DeviceMesh& mesh;        ///< the layout's
  const Placements& placements;  ///< the layout's
  mutable Remembered remembered;
  /// Of what is Partial: an operation made it, and nobody has its memory but through wrappers. What it adds up to is remembered
  /// only then.
  mutable bool is_own = false;
  /// Of a view: the parts of the tensor that has its elements in the same order, or, of two dimensions, transposed. Null: none.
  mutable c10::intrusive_ptr<const Parts> viewed = {};
  mutable bool is_transposed = false;
  /// Of a view that has memory of its own (moved_view.h).
  mutable std::shared_ptr<MovedView> moved_view = {};
  /// Operations bring others to it, and move it only where there is no other way (hold()).
  mutable bool is_held = false;
  /// Of a parameter: the axes on which gradients stay summands (leave_sums()).
  mutable std::vector<int64_t> left_sums = {};
  /// Whoever has weak pointers left keeps neither memory nor the mesh.
  void release_resources() override {
    local.reset();
    viewed.reset();
    moved_view.reset();
    remembered = Remembered();
    layout.reset();
  }
};

inline bool is_dtensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kKey);
}
/// Requires is_dtensor(tensor).
COHORT_TEST_API const Parts& parts_of(const at::Tensor& tensor);
c10::intrusive_ptr<const Parts> shared_parts_of(const at::Tensor& tensor);
/// This rank's part to be handed out, detached: its memory, of Parts::is_own a copy of it.
at::Tensor part_for_caller(const Parts& parts);
ShardSpec spec_of(const at::Tensor& tensor);
/// Of a DTensor that has just been made: it stays where it is, such as the weight of a layer that ranks compute in parts, where
/// otherwise the smaller tensor would travel. So do views of it, and copies in other dtypes.
void hold(const at::Tensor& tensor);
/// Of a parameter that has just been made: whoever shares it out along these axes, as fully_shard, adds up what is Partial there.
void leave_sums(const at::Tensor& parameter, std::vector<int64_t> axes);

/// `sizes`: the whole's. `strides`: the whole's; empty: dense, in the order in which `local` has its dimensions, or as written
/// where a rank cannot know that order: all ranks have the same strides, as LibTorch's functions do other things with other ones.
at::Tensor make_dtensor(at::Tensor local, LayoutPtr layout, c10::IntArrayRef sizes, c10::IntArrayRef strides = {});
at::Tensor make_dtensor(at::Tensor local, DeviceMesh mesh, Placements placements, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides = {});

/// What this rank has of a tensor of these sizes.
std::vector<int64_t> local_sizes(const DeviceMesh& mesh, const Placements& placements, c10::IntArrayRef sizes);
/// A placement on each axis.
Placements replicated(const DeviceMesh& mesh);

}  // namespace cohort::dtensor
