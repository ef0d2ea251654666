// Meshes made from meshes: slices, flattened and unflattened axes, and concatenated slices.
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cohort/mesh/mesh_groups.h"
#include "cohort/mesh/mesh_state.h"

namespace cohort {
namespace {

using mesh::Layout;
using mesh::names_text;

// Returns the position of `name`, or the number of names if it is not there.
size_t position_of(const DeviceMesh::AxisNames& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

bool is_whole(const DeviceMesh::State& state) {
  return state.layout == state.root->layout && state.names == state.root->names;
}

std::string valid_names_text(const DeviceMesh::State& state) {
  auto names = state.names;
  if (is_whole(state)) {
    for (const auto& entry : state.root->flattened) names.push_back(entry.name);
  }
  for (auto& name : names) name = "'" + name + "'";
  return c10::str("[", c10::Join(", ", names), "]");
}

// Only the full mesh knows flattened axes by name.
const mesh::Root::Flattened* flattened_axis(const DeviceMesh::State& state, const std::string& name) {
  return is_whole(state) ? state.root->find_flattened(name) : nullptr;
}

void check_sliced_layout(const Layout& layout, const DeviceMesh::AxisNames& names) {
  const auto whole = mesh::joined(layout);
  TORCH_CHECK_INDEX(whole.is_sorted(), "Invalid mesh_dim_names ", names_text(names),
                    " specified. Mesh dim indices should be in ascending order.");
  TORCH_CHECK(whole.is_orthogonal(), "Slicing overlapping dim_names ", names_text(names), " is not allowed.");
}

AxisBackend backend_named(const std::string& backend) { return {.axis = 0, .backend = backend}; }

}  // namespace

DeviceMesh DeviceMesh::operator[](const std::string& axis_name) const { return slice({axis_name}); }

DeviceMesh DeviceMesh::slice(const AxisNames& axis_names) const {
  TORCH_CHECK(!state_->names.empty(), "Cannot slice a DeviceMesh without mesh_dim_names!");
  if (axis_names == state_->names) return *this;
  State sliced{.root = state_->root, .others = state_->others, .layout = {}, .names = axis_names, .groups = {}};
  for (const auto& name : axis_names) {
    const auto index = position_of(state_->names, name);
    const auto* flattened = flattened_axis(*state_, name);
    TORCH_CHECK_INDEX(index < state_->names.size() || flattened, "Invalid mesh_dim_names ", names_text(axis_names),
                      " specified. Valid mesh_dim_names are ", valid_names_text(*state_), ".");
    const bool is_own = index < state_->names.size();
    sliced.layout.push_back(is_own ? state_->layout[index] : flattened->layout);
    if (!state_->groups.empty()) sliced.groups.push_back(is_own ? state_->groups[index] : flattened->group);
  }
  check_sliced_layout(sliced.layout, axis_names);
  return DeviceMesh(mesh::make_state(std::move(sliced)));
}

DeviceMesh DeviceMesh::flatten(const std::string& axis_name, const std::string& backend) const {
  TORCH_CHECK(!state_->names.empty(), "Cannot flatten a DeviceMesh without mesh_dim_names!");
  const auto name = axis_name.empty() ? c10::Join("_", state_->names) : axis_name;
  if (ndim() == 1 && name == state_->names.front()) return *this;
  auto& root = *state_->root;
  TORCH_CHECK_VALUE(
      position_of(root.names, name) == root.names.size(), name, " already exists for submesh of the ",
      DeviceMesh(mesh::make_state({.root = state_->root, .layout = root.layout, .names = root.names, .groups = {}}))
          .to_string(),
      ". The mesh_dim_names of submesh and flattened mesh are ", names_text(root.names),
      ". Please specify another valid mesh_dim_name.");
  const Layout layout{mesh::joined(state_->layout)};
  const auto* known = root.find_flattened(name);
  if (!known) {
    mesh::set_up_world(root.device_type, size());
    const auto groups = mesh::make_groups(root, layout, {name}, {backend_named(backend)});
    root.flattened.push_back({name, layout.front(), groups.empty() ? Group() : groups.front()});
    known = &root.flattened.back();
  }
  TORCH_CHECK_VALUE(known->layout == layout.front(), "Flatten mesh with mesh_dim_name ", name,
                    " has been created before, Please specify another valid mesh_dim_name.");
  State flattened{.root = state_->root, .others = state_->others, .layout = layout, .names = {name}, .groups = {}};
  if (known->group) flattened.groups.push_back(known->group);
  return DeviceMesh(mesh::make_state(std::move(flattened)));
}

DeviceMesh DeviceMesh::unflatten(const MeshAxis& axis, const std::vector<int64_t>& sizes, const AxisNames& axis_names,
                                 const DeviceMeshOptions& options) const {
  TORCH_CHECK_VALUE(axis.name || axis.index < ndim(), "dim ", axis.index, " specified in `_unflatten` is out of range ",
                    ndim());
  TORCH_CHECK(!state_->names.empty(), "Cannot unflatten a DeviceMesh without mesh_dim_names!");
  TORCH_CHECK_VALUE(!axis.name || position_of(state_->names, *axis.name) < state_->names.size(), "dim ",
                    axis.name.value_or(""), " specified in `_unflatten` is not in ", names_text(state_->names));
  TORCH_CHECK(sizes.size() == axis_names.size(), "mesh_dim_names must have same length as mesh_sizes in _unflatten!");
  const auto index = mesh::axis_index(*state_, axis, "tuple index out of range");
  const auto backends = mesh::backend_of_each_axis(options, static_cast<int64_t>(sizes.size()), axis_names);
  const int64_t product = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  TORCH_CHECK_VALUE(product == size(index) && product > 0, "The product of mesh_sizes=", mesh::tuple_text(sizes),
                    " is ", product, ", but the original dimension at dim=", index, " has size ", size(index),
                    ". These must be equal for unflatten to work correctly.");
  const auto parts = mesh::unflattened(state_->layout[index], sizes);

  const auto replace = [index](auto list, const auto& inserted) {
    list.erase(list.begin() + index);
    list.insert(list.begin() + index, inserted.begin(), inserted.end());
    return list;
  };
  State result{.root = state_->root,
               .others = state_->others,
               .layout = replace(state_->layout, parts),
               .names = replace(state_->names, axis_names),
               .groups = {}};
  mesh::check_names(result.names, static_cast<int64_t>(result.names.size()));
  const auto new_groups = mesh::make_groups(*state_->root, parts, axis_names, backends);
  if (!state_->groups.empty()) result.groups = replace(state_->groups, new_groups);
  return DeviceMesh(mesh::make_state(std::move(result)));
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  TORCH_CHECK_VALUE(!meshes.empty(), "[cohort] Expects at least one DeviceMesh to concatenate");
  const auto& first = *meshes.front().state_;
  State result{.root = first.root, .layout = {}, .names = {}, .groups = {}};
  for (const auto& one : meshes) {
    result.others.push_back(one.state_->root);
    result.others.insert(result.others.end(), one.state_->others.begin(), one.state_->others.end());
    TORCH_CHECK(one.state_->root->ranks == first.root->ranks,
                "Cannot concatenate DeviceMeshes derived from different device meshs");
    const auto append = [](auto& list, const auto& more) { list.insert(list.end(), more.begin(), more.end()); };
    append(result.layout, one.state_->layout);
    append(result.names, one.state_->names);
    append(result.groups, one.state_->groups);
  }
  std::vector<std::string> texts;
  for (const auto& one : meshes) texts.push_back(one.to_string());
  TORCH_CHECK(mesh::joined(result.layout).is_orthogonal(), "Cannot concatenate overlapping meshes: [",
              c10::Join(", ", texts), "]");
  mesh::check_names(result.names, static_cast<int64_t>(result.layout.size()));
  return DeviceMesh(mesh::make_state(std::move(result)));
}

}  // namespace cohort
