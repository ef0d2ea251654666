#include "cohort/mesh/sharded_tensor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/device.h"
#include "cohort/mesh/axis_moves.h"
#include "cohort/mesh/mesh_layout.h"
#include "cohort/mesh/purpose.h"

namespace cohort {
namespace {

// One axis of a mesh, as the tensor of this rank meets it.
struct Step {
  const DeviceMesh& mesh;
  int64_t axis;
  const Placement& placement;

  Group group() const { return mesh.group(axis); }
  int64_t num_ranks() const { return mesh.size(axis); }
  int64_t own_index() const { return (*mesh.coordinate())[axis]; }
};

at::Tensor scatter_axis(const Step& step, const at::Tensor& tensor, std::optional<int> src_rank) {
  const int64_t dim = step.placement.dim();
  const int64_t size = tensor.size(dim);
  const auto part = [&](int64_t index) {
    return take_ranges(tensor, dim, shard_ranges(step.placement, size, step.num_ranks(), index));
  };
  const auto own = part(step.own_index());
  if (!src_rank || tensor.is_meta()) return own.clone(at::MemoryFormat::Contiguous);

  const int64_t padded_size = padded_shard_size(step.placement, size, step.num_ranks());
  const auto padded = [&](const at::Tensor& one) { return pad_tensor(one, dim, padded_size - one.size(dim)); };
  TensorList parts;
  if (step.group()->getRank() == *src_rank) {
    for (const int64_t index : step.mesh.group_order(step.axis)) parts.push_back(padded(part(index)).contiguous());
  }
  auto shape = tensor.sizes().vec();
  shape[dim] = padded_size;
  const auto received = at::empty(shape, tensor.options());
  const comm::CalledFor purpose(mesh::kDTensorMove);
  if (received.numel() > 0) scatter(received, parts, group_rank(*src_rank), {.group = step.group()});
  return unpad_tensor(received, dim, padded_size - own.size(dim)).contiguous();
}

at::Tensor replicate_axis(const Step& step, const at::Tensor& tensor, std::optional<int> src_rank) {
  const auto result = tensor.contiguous();
  const bool is_sent = src_rank && !result.is_meta() && result.numel() > 0;
  const comm::CalledFor purpose(mesh::kDTensorMove);
  if (is_sent) broadcast(result, group_rank(*src_rank), {.group = step.group()});
  return result;
}

// What each rank holds so that the reduction gives `tensor`.
at::Tensor partition(const Step& step, const at::Tensor& tensor) {
  const auto& op = step.placement.reduce_op();
  if (op == "sum") return tensor / step.num_ranks();
  return tensor;
}

void check_partitions(const Placements& placements) {
  for (const auto& placement : placements) {
    if (!placement.is_partial()) continue;
    const auto& op = placement.reduce_op();
    TORCH_CHECK_VALUE(op == "sum" || op == "avg" || op == "min" || op == "max", "Replicate to Partial(", op,
                      ") conversion is not supported.");
  }
}

at::Tensor on_device_of(const DeviceMesh& mesh, const at::Tensor& tensor) {
  const auto type = c10::Device(mesh.device_type()).type();
  if (tensor.is_meta() || tensor.device().type() == type) return tensor;
  return tensor.to(type == c10::DeviceType::CPU ? c10::Device(type) : current_device());
}

}  // namespace

at::Tensor ShardedTensor::full_tensor() const {
  const auto& mesh = spec.mesh();
  if (!mesh.coordinate()) return local;
  const at::NoGradGuard no_grad;
  const auto expected = spec.local_shape();
  TORCH_CHECK_VALUE(local.sizes() == c10::IntArrayRef(expected), "The local tensor has shape ",
                    mesh::tuple_text(local.sizes().vec()), ", but ", spec.to_string(), " gives this rank ",
                    mesh::tuple_text(expected));
  auto result = local.detach();
  const auto& placements = spec.placements();
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial() || result.numel() == 0) continue;
    result = mesh::reduce_axis({mesh, static_cast<int64_t>(axis)}, placements[axis].reduce_op(), result);
  }
  for (size_t axis = placements.size(); axis-- > 0;) {
    if (!placements[axis].is_shard_like()) continue;
    // What this axis has cut is what the axes before it have left.
    Placements before(placements.size(), Replicate());
    std::copy_n(placements.begin(), axis, before.begin());
    const auto cut = compute_local_shape_and_global_offset(spec.shape(), mesh.shape(), *mesh.coordinate(), before);
    const mesh::AxisOf line{mesh, static_cast<int64_t>(axis)};
    result = mesh::gather_axis(line, placements[axis], result, cut.shape[placements[axis].dim()]);
  }
  return result;
}

ShardedTensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                                std::optional<int> src_rank) {
  TORCH_CHECK(tensor.is_leaf(),
              "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!");
  ShardSpec spec(mesh, placements, tensor.sizes().vec(), tensor.scalar_type(), tensor.strides().vec());
  check_partitions(spec.placements());
  const at::NoGradGuard no_grad;
  auto local = on_device_of(mesh, tensor.detach());
  if (!mesh.coordinate()) {
    local = at::empty({0}, local.options());
  } else {
    for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
      const Step step{mesh, axis, spec.placements()[axis]};
      local =
          step.placement.is_shard_like() ? scatter_axis(step, local, src_rank) : replicate_axis(step, local, src_rank);
      if (step.placement.is_partial()) local = partition(step, local);
    }
  }
  local.set_requires_grad(tensor.requires_grad());
  return {local, std::move(spec)};
}

}  // namespace cohort
