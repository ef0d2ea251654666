/// The tensor that stands for one in parts: an ordinary TensorImpl with the whole's sizes, no data, and beside it, in its
/// BackendMeta, this rank's part and the placements.
///
/// No subclass of TensorImpl, so that Tensor::set_data turns the parameter of an unmodified module into one in place.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/dtensor/wrapper/dispatch_key.h"
#include "cohort/dtensor/wrapper/layout.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::dtensor {

/// What an operation had to make of a tensor that is Partial: that is done once, as backward often wants the same again.
struct Reduced {
  at::Tensor local;  ///< undefined: nothing is known
  Placements placements;
  /// Of the wrapper and of its part, by which writing shows.
  uint32_t version = 0, local_version = 0;
  /// Where it was calculated; another stream would not wait for it. Nothing: on the CPU.
  std::optional<c10::Stream> stream = {};
};

/// Never changed once the wrapper exists: what is written in place goes into `local`.
struct Parts final : c10::BackendMeta {
  Parts(at::Tensor local, LayoutPtr layout);
  at::Tensor local;  ///< never requires a gradient; an empty one on a rank that the mesh does not have
  LayoutPtr layout;
  const DeviceMesh& mesh;        ///< the layout's
  const Placements& placements;  ///< the layout's
  /// A second reference to the wrapper's storage: autograd then never adds to the tensor in place, as several wrappers may
  /// share one local tensor, and the sum may be cheaper in other placements.
  c10::Storage storage;
  /// Of what is Partial: an operation made it, and nobody has its memory but through wrappers. What it adds up to is remembered
  /// only then.
  mutable bool is_own = false;
  mutable Reduced reduced;
};

inline bool is_dtensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kKey);
}
/// Requires is_dtensor(tensor).
const Parts& parts_of(const at::Tensor& tensor);
/// This rank's part to be handed out, detached: its memory, of Parts::is_own a copy of it.
at::Tensor part_for_caller(const Parts& parts);
ShardSpec spec_of(const at::Tensor& tensor);

/// `sizes`: the whole's. `strides`: the whole's; empty: dense, in the order in which `local` has its dimensions.
at::Tensor make_dtensor(at::Tensor local, LayoutPtr layout, c10::IntArrayRef sizes, c10::IntArrayRef strides = {});
at::Tensor make_dtensor(at::Tensor local, DeviceMesh mesh, Placements placements, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides = {});

/// What this rank has of a tensor of these sizes.
std::vector<int64_t> local_sizes(const DeviceMesh& mesh, const Placements& placements, c10::IntArrayRef sizes);
/// A placement on each axis.
Placements replicated(const DeviceMesh& mesh);

}  // namespace cohort::dtensor
