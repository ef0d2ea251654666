/// The wrapper: the at::Tensor that represents a DTensor. It is an ordinary TensorImpl with the global sizes and no data; its
/// BackendMeta has this rank's local tensor and the placements.
///
/// It is not a subclass of TensorImpl, so that Tensor::set_data can make a parameter of an unmodified module a DTensor in place.
///
/// All wrappers of a device share one storage. So autograd never owns a wrapper alone and adds to it in place: several wrappers
/// may share one local tensor, and the sum may be cheaper in other placements.
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

/// A redistributed local tensor, kept for operations that need the same placements (dispatch/redistribution_cache.h).
struct CachedLocal {
  at::Tensor local;  ///< undefined if nothing is kept
  Placements placements;
  /// Versions of the wrapper and of its local tensor, which show later writes.
  uint32_t version = 0, local_version = 0;
  /// The stream that computed it; another stream would not wait for it. Absent on the CPU.
  std::optional<c10::Stream> stream = {};
};

struct RedistributedView;

/// The data of a DTensor: its local tensor and placements. Memory and placements never change once the wrapper exists: writes
/// in place go to `local`. The thread that computes with the tensor sets `mutable` members later.
struct DTensorData final : c10::BackendMeta {
  DTensorData(at::Tensor local, LayoutPtr layout);
  at::Tensor local;  ///< never requires a gradient; empty on a rank outside of the mesh
  LayoutPtr layout;
  const DeviceMesh& mesh;        ///< of the layout
  const Placements& placements;  ///< of the layout
  mutable CachedLocal cached;
  /// For a Partial: whether an operation made it, and its memory is reachable only through wrappers. Its reduced value is kept
  /// only then.
  mutable bool is_own = false;
  /// For a view: the base with the same elements in the same order, or transposed if it has two dimensions. Null for other
  /// tensors.
  mutable c10::intrusive_ptr<const DTensorData> viewed = {};
  mutable bool is_transposed = false;
  /// For a view that has memory of its own (redistributed_view.h).
  mutable std::shared_ptr<RedistributedView> redistributed_view = {};
  /// Whether operations redistribute other operands to this tensor's placements, and this one only if they must (hold()).
  mutable bool is_held = false;
  /// For a parameter: the axes on which gradients stay Partial (leave_sums()).
  mutable std::vector<int64_t> left_sums = {};
  /// Called when only weak pointers are left: releases memory and mesh.
  void release_resources() override {
    local.reset();
    viewed.reset();
    redistributed_view.reset();
    cached = CachedLocal();
    layout.reset();
  }
};

inline bool is_dtensor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kKey);
}
/// Requires: is_dtensor(tensor).
COHORT_TEST_API const DTensorData& dtensor_data(const at::Tensor& tensor);
c10::intrusive_ptr<const DTensorData> shared_dtensor_data(const at::Tensor& tensor);
/// Returns this rank's local tensor for the user, detached: the tensor's memory, or a copy if DTensorData::is_own.
at::Tensor local_for_caller(const DTensorData& data);
mesh::ShardSpec spec_of(const at::Tensor& tensor);
/// Keeps the placements of a new DTensor, its views and its copies in other dtypes, even if it would be cheaper to redistribute
/// them than the other operands; for example the weight of a layer that ranks compute in shards.
void hold(const at::Tensor& tensor);
/// Leaves gradients of a new parameter Partial along these axes: the code that shards it there, such as fully_shard, sums them.
void leave_sums(const at::Tensor& parameter, std::vector<int64_t> axes);

/// `sizes`: the global sizes. `strides`: the global strides. If empty, dense, with the dimensions in the memory order of `local`;
/// or in their own order if a rank cannot know that order. All ranks must have the same strides, because LibTorch's functions
/// depend on them.
at::Tensor make_dtensor(at::Tensor local, LayoutPtr layout, c10::IntArrayRef sizes, c10::IntArrayRef strides = {});
at::Tensor make_dtensor(at::Tensor local, DeviceMesh mesh, Placements placements, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides = {});

/// Returns the sizes of this rank's local tensor of a tensor of these global sizes.
std::vector<int64_t> local_sizes(const DeviceMesh& mesh, const Placements& placements, c10::IntArrayRef sizes);
/// Returns a Replicate() for each axis.
Placements replicated(const DeviceMesh& mesh);

}  // namespace cohort::dtensor
