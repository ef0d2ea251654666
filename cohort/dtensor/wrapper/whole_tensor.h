/// From a whole tensor to the ranks' parts, and back. Values only: no dispatch key is needed, autograd knows nothing of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::dtensor {

/// Where this rank has its part of tensors on `mesh`.
c10::Device device_of(const DeviceMesh& mesh);
/// `tensor` there: itself where it is.
at::Tensor on_device_of(const DeviceMesh& mesh, const at::Tensor& tensor);

/// Throws c10::ValueError if `local` has another shape than `spec` gives this rank.
void check_part(const at::Tensor& local, const ShardSpec& spec);

/// Collective over the mesh: this rank's part, contiguous, of the tensor that the rank that is number `src_rank` on every axis
/// has; without one, of `whole`, and nothing is sent. What is replicated on the way is overwritten in place if it is contiguous.
/// An empty tensor on a rank that the mesh does not have.
/// Throws c10::ValueError for Partials of "product" and bits, which have no inverse.
at::Tensor scattered(const at::Tensor& whole, const ShardSpec& spec, std::optional<int> src_rank = 0);
/// Collective over the mesh: all of the tensor of which `local` is this rank's part, in new memory unless all ranks have all of
/// it. `local` itself on a rank that the mesh does not have. Throws what check_part() throws.
COHORT_TEST_API at::Tensor gathered(const at::Tensor& local, const ShardSpec& spec);

}  // namespace cohort::dtensor
