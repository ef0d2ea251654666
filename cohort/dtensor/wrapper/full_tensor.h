/// Conversions from a full tensor to local tensors, and back. They need no dispatch key, and autograd does not see them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::dtensor {

/// Returns this rank's device for tensors on `mesh`.
c10::Device device_of(const DeviceMesh& mesh);
/// Returns `tensor` on this device; itself if it is there.
at::Tensor on_device_of(const DeviceMesh& mesh, const at::Tensor& tensor);

/// Throws c10::ValueError if `local` has another shape than `spec` gives this rank.
void check_local_shape(const at::Tensor& local, const mesh::ShardSpec& spec);

/// Returns this rank's local tensor, contiguous, of the full tensor on the rank that is number `src_rank` on every axis. If
/// `src_rank` is absent, uses this rank's `full` without communication. Tensors that are replicated on the way are overwritten
/// in place if they are contiguous. Collective over the mesh. Returns an empty tensor on a rank outside of the mesh.
/// Throws c10::ValueError for Partials of "product" and bits, which have no inverse.
at::Tensor scattered(const at::Tensor& full, const mesh::ShardSpec& spec, std::optional<int> src_rank = 0);
/// Returns the full tensor of which `local` is this rank's local tensor, in new memory unless it is replicated. Collective over
/// the mesh. Returns `local` itself on a rank outside of the mesh. Throws what check_local_shape() throws.
COHORT_TEST_API at::Tensor gathered(const at::Tensor& local, const mesh::ShardSpec& spec);

}  // namespace cohort::dtensor
