#include "cohort/parallel/fsdp/tensors/module_tensor.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/error/exception_text.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/full_tensor.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

Placements joined(Placements first, const Placements& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Returns the coordinate of the rank at `place` of `shape`, whose last axis runs fastest.
std::vector<int64_t> coordinate_at(int64_t place, const std::vector<int64_t>& shape) {
  std::vector<int64_t> coordinate(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; place /= shape[axis]) coordinate[axis] = place % shape[axis];
  return coordinate;
}

// A tensor on both meshes, whose placements are applied in either order.
struct TwoMeshes {
  const std::vector<int64_t>& sizes;
  const DeviceMesh& data;
  const Placements& data_placements;
  const DeviceMesh& own;
  const Placements& own_placements;

  // Whether every rank has the same elements, in the same order.
  bool agree(const Placements& data_first) const {
    const auto data_shape = data.shape(), own_shape = own.shape();
    const auto first_shape = joined_sizes(data_shape, own_shape), last_shape = joined_sizes(own_shape, data_shape);
    for (int64_t place = 0; place < data.size() * own.size(); ++place) {
      const auto on_data = coordinate_at(place / own.size(), data_shape);
      const auto on_own = coordinate_at(place % own.size(), own_shape);
      const auto expected =
          mesh::held_ranges(sizes, last_shape, joined_sizes(on_own, on_data), joined(own_placements, data_placements));
      if (mesh::held_ranges(sizes, first_shape, joined_sizes(on_data, on_own), joined(data_first, own_placements)) !=
          expected) {
        return false;
      }
    }
    return true;
  }

  static std::vector<int64_t> joined_sizes(std::vector<int64_t> first, const std::vector<int64_t>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
};

DeviceMesh side_by_side(const DeviceMesh& first, const DeviceMesh& second) {
  try {
    return DeviceMesh::concatenate({first, second});
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, "FSDP requires the DP and model parallel TP/EP mesh to have the same parent mesh but got ",
                      first.to_string(), " and ", second.to_string(), ": ", comm::text_of(error),
                      "\n  hint: make one mesh with an axis for each, and give fully_shard mesh[\"dp\"], and the "
                      "module's parameters mesh[\"tp\"]");
  }
}

std::vector<Group> groups_where(const std::optional<ModelShard>& part, bool (*is_wanted)(const Placement&)) {
  std::vector<Group> groups;
  if (!part || !part->spec) return groups;
  for (int64_t axis = 0; axis < part->spec->mesh().ndim(); ++axis) {
    if (is_wanted(part->spec->placements()[axis])) groups.push_back(part->spec->mesh().group(axis));
  }
  return groups;
}

// Returns the numbers of the ranks along an axis, through this rank.
std::vector<int64_t> line_along(const DeviceMesh& mesh, int64_t axis) {
  auto ranks = mesh.mesh();
  for (int64_t other = mesh.ndim() - 1; other >= 0; --other) {
    if (other != axis) ranks = ranks.select(other, mesh.coordinate()->at(static_cast<size_t>(other)));
  }
  const auto line = ranks.contiguous();
  return {line.const_data_ptr<int64_t>(), line.const_data_ptr<int64_t>() + line.numel()};
}

std::string axis_name(const DeviceMesh& mesh, int64_t axis) {
  const auto& names = mesh.axis_names();
  return names.empty() ? "" : names[static_cast<size_t>(axis)];
}

bool has_name(const DeviceMesh& mesh, const std::string& name) {
  const auto& names = mesh.axis_names();
  return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
}

// An axis of one rank is a data axis by its name.
bool is_data_axis(const DeviceMesh& mesh, int64_t axis, const DeviceMesh& data) {
  if (!mesh.coordinate()) return false;  // this rank is not on the mesh
  if (mesh.size(axis) == 1) return has_name(data, axis_name(mesh, axis));
  const auto all = data.mesh().flatten();
  const auto line = line_along(mesh, axis);
  return std::all_of(line.begin(), line.end(), [&](int64_t rank) { return all.eq(rank).any().item<bool>(); });
}

void check_is_replicated(const dtensor::DTensorData& wrapper, int64_t axis, const DeviceMesh& data) {
  const auto& placement = wrapper.placements[static_cast<size_t>(axis)];
  if (placement.is_replicate()) return;
  const auto shards = line_along(data, data.ndim() - 1), line = line_along(wrapper.mesh, axis);
  const bool is_shard_axis = std::all_of(line.begin(), line.end(), [&](int64_t rank) {
    return std::find(shards.begin(), shards.end(), rank) != shards.end();
  });
  TORCH_CHECK_VALUE(false, "Expected Replicate() on DP ", is_shard_axis ? "shard" : "replicate", " dim '",
                    axis_name(wrapper.mesh, axis), "' (index ", axis, ") but got ", placement);
}

}  // namespace

const at::Tensor& own_shard(const at::Tensor& parameter) {
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): callers keep the parameter
  return is_dtensor(parameter) ? dtensor::dtensor_data(parameter).local : parameter;
}

at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values) {
  if (!is_dtensor(parameter)) return values;
  const auto& wrapper = dtensor::dtensor_data(parameter);
  return dtensor::make_dtensor(values, wrapper.mesh, wrapper.placements, parameter.sizes(), parameter.strides());
}

void put_own_shard(const at::Tensor& parameter, const at::Tensor& values) {
  auto full = laid_as(parameter, values);
  if (is_dtensor(parameter) && dtensor::dtensor_data(parameter).is_held) dtensor::hold(full);
  // Does the same as set_data(), which refuses other dtypes and devices.
  parameter.unsafeGetTensorImpl()->shallow_copy_from(full.getIntrusivePtr());
}

at::Tensor own_gradient(const at::Tensor& gradient, const at::Tensor& parameter,
                        const std::vector<int64_t>& data_axes) {
  if (!is_dtensor(parameter)) return gradient;
  TORCH_CHECK(is_dtensor(gradient), "[cohort] the gradient of a DTensor parameter of shape ", parameter.sizes(),
              " is a plain tensor");
  const auto& lies = dtensor::dtensor_data(gradient).placements;
  auto placements = dtensor::dtensor_data(parameter).placements;
  for (const auto axis : data_axes) {
    const auto& as_it_is = lies.at(static_cast<size_t>(axis));
    if (as_it_is.is_partial()) placements.at(static_cast<size_t>(axis)) = as_it_is;
  }
  if (lies == placements) return own_shard(gradient);
  return own_shard(DTensor(gradient.detach()).redistribute(placements));
}

at::Tensor own_gradient(const at::Tensor& gradient, const ShardedParameter& parameter) {
  return own_gradient(gradient, parameter.full,
                      parameter.model_shard ? parameter.model_shard->data_axes : std::vector<int64_t>());
}

void leave_sums_of_data(const ShardedParameter& parameter) {
  if (is_dtensor(parameter.full) && parameter.model_shard)
    dtensor::leave_sums(parameter.full, parameter.model_shard->data_axes);
}

std::optional<ModelShard> model_shard_of(const at::Tensor& parameter, const DeviceMesh& data) {
  if (!is_dtensor(parameter)) return std::nullopt;
  const auto& wrapper = dtensor::dtensor_data(parameter);
  ModelShard part;
  DeviceMesh::AxisNames names;
  Placements placements;
  for (int64_t axis = 0; axis < wrapper.mesh.ndim(); ++axis) {
    if (is_data_axis(wrapper.mesh, axis, data)) {
      check_is_replicated(wrapper, axis, data);
      part.data_axes.push_back(axis);
    } else {
      names.push_back(axis_name(wrapper.mesh, axis));
      placements.push_back(wrapper.placements[static_cast<size_t>(axis)]);
    }
  }
  if (names.empty()) return part;
  part.spec.emplace(part.data_axes.empty() ? wrapper.mesh : wrapper.mesh.slice(names), placements,
                    parameter.sizes().vec(), parameter.scalar_type());
  return part;
}

mesh::ShardSpec spec_of_shard(const at::Tensor& parameter, const std::optional<ModelShard>& part, int64_t dim,
                              c10::ScalarType dtype, const DeviceMesh& data) {
  Placements on_data;
  if (data.ndim() == 2) on_data.emplace_back(Replicate());
  if (!part || !part->spec) return {data, joined(on_data, {Shard(dim)}), parameter.sizes().vec(), dtype};
  const auto& mesh = part->spec->mesh();
  const auto& placements = part->spec->placements();
  const auto& sizes = part->spec->shape();
  const auto num_shards = part->spec->num_shards(dim);
  const auto data_first =
      joined(on_data, {num_shards > 1 ? Placement(StridedShard(dim, num_shards)) : Placement(Shard(dim))});
  on_data.emplace_back(Shard(dim));
  if (TwoMeshes{sizes, data, on_data, mesh, placements}.agree(data_first)) {
    return {side_by_side(data, mesh), joined(data_first, placements), sizes, dtype};
  }
  return {side_by_side(mesh, data), joined(placements, on_data), sizes, dtype};
}

std::vector<Group> groups_of_axes(const std::optional<ModelShard>& part) {
  return groups_where(part, [](const Placement&) { return true; });
}

std::vector<Group> groups_of_shards(const std::optional<ModelShard>& part) {
  return groups_where(part, [](const Placement& placement) { return placement.is_shard_like(); });
}

std::string placement_text(const at::Tensor& parameter) {
  const auto spec = parallel::noted_shard_spec(parameter);
  if (!spec) return "";
  if (is_dtensor(parameter)) return to_string(spec->placements());
  return c10::str(" shard ", spec->mesh().local_rank(), " of ", spec->num_shards(), " along dimension ",
                  spec->placements().front().dim(), " of ", c10::IntArrayRef(spec->shape()));
}

void write_full(const Writer& writer, const ShardedParameter& parameter, const at::Tensor& values) {
  const auto& part = parameter.model_shard;
  if (!part || !part->spec) {
    writer(parameter.name, values);
    return;
  }
  const auto full = dtensor::gathered(values, *part->spec);
  const auto& place = *part->spec->mesh().coordinate();
  const bool is_first = std::all_of(place.begin(), place.end(), [](int64_t index) { return index == 0; });
  if (is_first) writer(parameter.name, full);
  values.copy_(dtensor::scattered(full, *part->spec));
}

}  // namespace cohort::fsdp
