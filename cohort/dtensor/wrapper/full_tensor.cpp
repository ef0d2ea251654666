#include "cohort/dtensor/wrapper/full_tensor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/device.h"
#include "cohort/dtensor/wrapper/redistribution.h"
#include "cohort/mesh/axis_collectives.h"
#include "cohort/mesh/mesh_layout.h"
#include "cohort/mesh/purpose.h"

namespace cohort::dtensor {
namespace {

at::Tensor scatter_axis(const mesh::AxisOf& line, const Placement& shard, const at::Tensor& tensor,
                        std::optional<int> src_rank) {
  if (!src_rank || tensor.is_meta()) return mesh::own_shard(line, shard, tensor);
  const int64_t dim = shard.dim(), size = tensor.size(dim);
  const auto ranges_of = [&](int64_t index) { return mesh::shard_ranges(shard, size, line.num_ranks(), index); };
  const int64_t padded_size = mesh::padded_shard_size(shard, size, line.num_ranks());
  TensorList parts;
  if (line.group()->getRank() == *src_rank) {
    for (const int64_t index : line.order()) {
      const auto part = mesh::take_ranges(tensor, dim, ranges_of(index));
      parts.push_back(mesh::pad_tensor(part, dim, padded_size - part.size(dim)).contiguous());
    }
  }
  auto shape = tensor.sizes().vec();
  shape[dim] = padded_size;
  const auto received = at::empty(shape, tensor.options());
  if (received.numel() > 0) scatter(received, parts, group_rank(*src_rank), {.group = line.group()});
  return mesh::unpad_tensor(received, dim, padded_size - base::num_indices(ranges_of(line.own_index()))).contiguous();
}

at::Tensor replicate_axis(const mesh::AxisOf& line, const at::Tensor& tensor, std::optional<int> src_rank) {
  const auto result = tensor.contiguous();
  const bool is_sent = src_rank && !result.is_meta() && result.numel() > 0;
  if (is_sent) broadcast(result, group_rank(*src_rank), {.group = line.group()});
  return result;
}

void check_has_inverse(const Placement& placement) {
  if (!placement.is_partial()) return;
  const auto& op = placement.reduce_op();
  TORCH_CHECK_VALUE(op == "sum" || op == "avg" || op == "min" || op == "max", "Replicate to Partial(", op,
                    ") conversion is not supported.");
}

}  // namespace

c10::Device device_of(const DeviceMesh& mesh) {
  const auto type = c10::Device(mesh.device_type()).type();
  return type == c10::DeviceType::CPU ? c10::Device(type) : current_device();
}

at::Tensor on_device_of(const DeviceMesh& mesh, const at::Tensor& tensor) {
  const bool is_there = tensor.is_meta() || tensor.device().type() == c10::Device(mesh.device_type()).type();
  return is_there ? tensor : tensor.to(device_of(mesh));
}

void check_local_shape(const at::Tensor& local, const mesh::ShardSpec& spec) {
  const auto expected = spec.local_shape();
  TORCH_CHECK_VALUE(local.sizes() == c10::IntArrayRef(expected), "[cohort] The local tensor has shape ",
                    mesh::tuple_text(local.sizes().vec()), ", but ", spec.to_string(), " gives this rank ",
                    mesh::tuple_text(expected));
}

at::Tensor scattered(const at::Tensor& full, const mesh::ShardSpec& spec, std::optional<int> src_rank) {
  const auto& mesh = spec.mesh();
  for (const auto& placement : spec.placements()) check_has_inverse(placement);
  const at::NoGradGuard no_grad;
  const comm::CalledFor purpose(comm::CalledFor::current_or(mesh::kRedistribution));
  auto local = on_device_of(mesh, full.detach());
  if (!mesh.coordinate()) return at::empty({0}, local.options());
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    const mesh::AxisOf line{mesh, axis};
    const auto& placement = spec.placements()[axis];
    local = placement.is_shard_like() ? scatter_axis(line, placement, local, src_rank)
                                      : replicate_axis(line, local, src_rank);
    // Divided, so that the reduction gives the tensor.
    if (placement == Partial("sum")) local = local / line.num_ranks();
  }
  return local;
}

at::Tensor gathered(const at::Tensor& local, const mesh::ShardSpec& spec) {
  const auto& mesh = spec.mesh();
  if (!mesh.coordinate()) return local;
  check_local_shape(local, spec);
  const at::NoGradGuard no_grad;
  const auto own = local.detach();
  auto full = redistributed(own, mesh, spec.placements(), replicated(mesh), spec.shape());
  const bool is_own = full.is_same(own) && !spec.is_replicated();  // true on one rank, where nothing moves
  return is_own ? full.clone(at::MemoryFormat::Contiguous) : full;
}

}  // namespace cohort::dtensor
