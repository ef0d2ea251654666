#include "cohort/parallel/fsdp/module_tensor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "cohort/mesh/shard.h"

namespace cohort::fsdp {
namespace {

Placements joined(Placements first, const Placements& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The rank at `place` of `shape`, counted through as its last axis runs fastest.
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
  const dtensor::Parts& parts;

  // On every rank the same elements, in the same order.
  bool agree(const Placements& data_first) const {
    const auto data_shape = data.shape(), own_shape = parts.mesh.shape();
    const auto first_shape = joined_sizes(data_shape, own_shape), last_shape = joined_sizes(own_shape, data_shape);
    for (int64_t place = 0; place < data.size() * parts.mesh.size(); ++place) {
      const auto on_data = coordinate_at(place / parts.mesh.size(), data_shape);
      const auto on_own = coordinate_at(place % parts.mesh.size(), own_shape);
      const auto expected =
          held_ranges(sizes, last_shape, joined_sizes(on_own, on_data), joined(parts.placements, data_placements));
      if (held_ranges(sizes, first_shape, joined_sizes(on_data, on_own), joined(data_first, parts.placements)) !=
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
                      first.to_string(), " and ", second.to_string(), ": ", error.what_without_backtrace(),
                      "\n  hint: make one mesh with an axis for each, and give fully_shard mesh[\"dp\"], and the "
                      "module's parameters mesh[\"tp\"]");
  }
}

std::vector<Group> groups_where(const at::Tensor& parameter, bool (*is_wanted)(const Placement&)) {
  std::vector<Group> groups;
  if (!is_dtensor(parameter)) return groups;
  const auto& parts = dtensor::parts_of(parameter);
  for (size_t axis = 0; axis < parts.placements.size(); ++axis) {
    if (is_wanted(parts.placements[axis])) groups.push_back(parts.mesh.group(static_cast<int64_t>(axis)));
  }
  return groups;
}

}  // namespace

const at::Tensor& own_part(const at::Tensor& parameter) {
  return is_dtensor(parameter) ? dtensor::parts_of(parameter).local : parameter;
}

at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values) {
  if (!is_dtensor(parameter)) return values;
  const auto& parts = dtensor::parts_of(parameter);
  return dtensor::make_dtensor(values, parts.mesh, parts.placements, parameter.sizes(), parameter.strides());
}

void put_own_part(const at::Tensor& parameter, const at::Tensor& values) {
  auto whole = laid_as(parameter, values);
  if (is_dtensor(parameter) && dtensor::parts_of(parameter).is_held) dtensor::hold(whole);
  // As set_data(), which refuses other dtypes and devices.
  parameter.unsafeGetTensorImpl()->shallow_copy_from(whole.getIntrusivePtr());
}

at::Tensor own_gradient(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (!is_dtensor(parameter)) return gradient;
  const auto& placements = dtensor::parts_of(parameter).placements;
  TORCH_CHECK(is_dtensor(gradient), "the gradient of a DTensor parameter of shape ", parameter.sizes(),
              " is a plain tensor");
  if (dtensor::parts_of(gradient).placements == placements) return own_part(gradient);
  return own_part(DTensor(gradient.detach()).redistribute(placements));
}

ShardSpec spec_of_shard(const at::Tensor& parameter, int64_t dim, c10::ScalarType dtype, const DeviceMesh& mesh) {
  Placements data;
  if (mesh.ndim() == 2) data.emplace_back(Replicate());
  const auto sizes = parameter.sizes().vec();
  if (!is_dtensor(parameter)) return {mesh, joined(data, {Shard(dim)}), sizes, dtype};
  const auto& parts = dtensor::parts_of(parameter);
  const auto num_cuts = dtensor::spec_of(parameter).num_shards(dim);
  const auto data_first = joined(data, {num_cuts > 1 ? Placement(StridedShard(dim, num_cuts)) : Placement(Shard(dim))});
  data.emplace_back(Shard(dim));
  if (TwoMeshes{sizes, mesh, data, parts}.agree(data_first)) {
    return {side_by_side(mesh, parts.mesh), joined(data_first, parts.placements), sizes, dtype};
  }
  return {side_by_side(parts.mesh, mesh), joined(parts.placements, data), sizes, dtype};
}

std::vector<Group> groups_of_axes(const at::Tensor& parameter) {
  return groups_where(parameter, [](const Placement&) { return true; });
}

std::vector<Group> groups_of_cuts(const at::Tensor& parameter) {
  return groups_where(parameter, [](const Placement& placement) { return placement.is_shard_like(); });
}

std::string placement_text(const at::Tensor& parameter) {
  return is_dtensor(parameter) ? to_string(dtensor::parts_of(parameter).placements) : std::string();
}

void write_whole(const Writer& writer, const std::string& name, const at::Tensor& parameter, const at::Tensor& values) {
  if (!is_dtensor(parameter)) {
    writer(name, values);
    return;
  }
  const auto& parts = dtensor::parts_of(parameter);
  const ShardSpec spec(parts.mesh, parts.placements, parameter.sizes().vec(), values.scalar_type());
  const auto whole = ShardedTensor{values, spec}.full_tensor();
  const auto& place = *parts.mesh.coordinate();
  const bool is_first = std::all_of(place.begin(), place.end(), [](int64_t index) { return index == 0; });
  if (is_first) writer(name, whole);
  values.copy_(distribute_tensor(whole, parts.mesh, parts.placements).local);
}

}  // namespace cohort::fsdp
