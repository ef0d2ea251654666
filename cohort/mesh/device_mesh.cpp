#include "cohort/mesh/device_mesh.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <numeric>
#include <set>

#include "cohort/base/system/env.h"
#include "cohort/comm/group/world.h"
#include "cohort/mesh/mesh_groups.h"
#include "cohort/mesh/mesh_state.h"

namespace cohort {
namespace {

using mesh::Layout;
using mesh::Root;

at::Tensor tensor_of(const std::vector<int64_t>& ranks, const std::vector<int64_t>& shape) {
  return at::tensor(ranks, at::kLong).view(shape);
}

std::vector<int64_t> numbers_in(const at::Tensor& mesh) {
  const auto flat = mesh.detach().to(at::kCPU, at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

at::Tensor tensor_of_lists(const std::vector<std::vector<int64_t>>& lists) {
  std::vector<int64_t> ranks;
  for (const auto& list : lists) {
    TORCH_CHECK_VALUE(list.size() == lists.front().size(), "expected sequence of length ", lists.front().size(),
                      " at dim 1 (got ", list.size(), ")");
    ranks.insert(ranks.end(), list.begin(), list.end());
  }
  const auto num_lists = static_cast<int64_t>(lists.size());
  return tensor_of(ranks, {num_lists, lists.empty() ? 0 : static_cast<int64_t>(lists.front().size())});
}

void check_ranks(const std::vector<int64_t>& ranks) {
  TORCH_CHECK_VALUE(!ranks.empty(), "[cohort] A DeviceMesh needs at least one rank");
  std::set<int64_t> seen;
  for (const int64_t rank : ranks) {
    const bool is_new = seen.insert(rank).second;
    TORCH_CHECK_VALUE(is_new, "[cohort] A rank may stand in a DeviceMesh only once, but rank ", rank, " stands in [",
                      c10::Join(", ", ranks), "] more often");
  }
}

void check_range(const std::vector<int64_t>& ranks, int world_size) {
  for (const int64_t rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < world_size, "Rank ", rank, " is out of range. Valid ranks are 0 to ",
                      world_size - 1, " (world_size=", world_size, ")");
  }
}

std::shared_ptr<Root> make_root(std::string device_type, const std::vector<int64_t>& ranks,
                                const std::vector<int64_t>& shape, const DeviceMesh::AxisNames& names) {
  check_ranks(ranks);
  mesh::check_names(names, static_cast<int64_t>(shape.size()));
  auto root = std::make_shared<Root>();
  root->device_type = std::move(device_type);
  root->ranks = ranks;
  root->layout = mesh::dense_layout(shape);
  root->names = names;
  return root;
}

std::shared_ptr<const DeviceMesh::State> root_state(const std::shared_ptr<Root>& root, std::vector<Group> groups) {
  return mesh::make_state({.root = root, .layout = root->layout, .names = root->names, .groups = std::move(groups)});
}

std::shared_ptr<const DeviceMesh::State> new_mesh(std::string device_type, const std::vector<int64_t>& ranks,
                                                  const std::vector<int64_t>& shape, const DeviceMesh::AxisNames& names,
                                                  const DeviceMeshOptions& options) {
  const auto root = make_root(std::move(device_type), ranks, shape, names);
  const auto backends = mesh::backend_of_each_axis(options, static_cast<int64_t>(shape.size()), names);
  mesh::set_up_world(root->device_type, static_cast<int64_t>(ranks.size()));
  check_range(ranks, get_world_size());
  root->rank = get_rank();
  return root_state(root, mesh::make_groups(*root, root->layout, names, backends));
}

std::string mesh_text(const at::Tensor& mesh, size_t at = 0, int64_t depth = 0) {
  const auto numbers = numbers_in(mesh);
  if (depth == mesh.dim()) return std::to_string(numbers[at]);
  size_t inner = 1;
  for (int64_t dim = depth + 1; dim < mesh.dim(); ++dim) inner *= mesh.size(dim);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < mesh.size(depth); ++i) texts.push_back(mesh_text(mesh, at + i * inner, depth + 1));
  return c10::str("[", c10::Join(", ", texts), "]");
}

// Returns this process's default-group rank, as its ranks in the mesh's groups imply it.
int64_t rank_by_groups(const std::vector<Group>& groups, const at::Tensor& mesh) {
  auto place = mesh;
  for (size_t axis = 0; axis < groups.size(); ++axis) {
    TORCH_CHECK_VALUE(groups[axis]->getSize() == mesh.size(static_cast<int64_t>(axis)),
                      "[cohort] The group of mesh dim ", axis, " has ", groups[axis]->getSize(),
                      " ranks, but the mesh ", mesh.size(static_cast<int64_t>(axis)));
    place = place.select(0, groups[axis]->getRank());
  }
  return place.item<int64_t>();
}

const comm::GroupRecord* known_record(const Group& group) {
  return is_initialized() ? comm::world().find(group) : nullptr;
}

}  // namespace

DeviceMesh::DeviceMesh(std::string device_type, const at::Tensor& mesh, const AxisNames& axis_names,
                       const DeviceMeshOptions& options)
    : state_(new_mesh(std::move(device_type), numbers_in(mesh), mesh.sizes().vec(), axis_names, options)) {}

DeviceMesh::DeviceMesh(std::string device_type, const std::vector<int64_t>& mesh, const AxisNames& axis_names,
                       const DeviceMeshOptions& options)
    : state_(new_mesh(std::move(device_type), mesh, {static_cast<int64_t>(mesh.size())}, axis_names, options)) {}

DeviceMesh::DeviceMesh(std::string device_type, const std::vector<std::vector<int64_t>>& mesh,
                       const AxisNames& axis_names, const DeviceMeshOptions& options)
    : DeviceMesh(std::move(device_type), tensor_of_lists(mesh), axis_names, options) {}

DeviceMesh init_device_mesh(const std::string& device_type, c10::IntArrayRef shape,
                            const DeviceMesh::AxisNames& axis_names, const DeviceMeshOptions& options) {
  mesh::check_names(axis_names, static_cast<int64_t>(shape.size()));
  mesh::backend_of_each_axis(options, static_cast<int64_t>(shape.size()), axis_names);
  const bool is_letters =
      std::all_of(device_type.begin(), device_type.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  TORCH_CHECK(is_letters, "Device type with index is not supported but got ", device_type,
              ". If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.");
  for (const int64_t size : shape) {
    TORCH_CHECK_VALUE(size > 0, "[cohort] A DeviceMesh needs at least one rank along each mesh dim, but its shape is ",
                      mesh::tuple_text(shape.vec()));
  }
  std::vector<int64_t> ranks(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return DeviceMesh(device_type, tensor_of(ranks, shape.vec()), axis_names, options);
}

DeviceMesh DeviceMesh::from_group(const Group& group, std::string device_type, const AxisNames& axis_names,
                                  const std::optional<at::Tensor>& mesh) {
  std::vector<int64_t> ranks;
  const auto* const record = known_record(group);
  if (record) {
    ranks.assign(record->ranks.begin(), record->ranks.end());
  } else {
    TORCH_CHECK_VALUE(group,
                      "Default process group has not been initialized, please make sure to call init_process_group.");
    ranks.resize(group->getSize());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  TORCH_CHECK_VALUE(!mesh || (mesh->dim() == 1 && numbers_in(*mesh) == ranks), "Invalid mesh ",
                    mesh ? mesh_text(*mesh) : "", " for ProcessGroup with ranks [", c10::Join(", ", ranks), "]");
  const auto root = make_root(std::move(device_type), ranks, {static_cast<int64_t>(ranks.size())}, axis_names);
  root->rank = record ? get_rank() : ranks[group->getRank()];
  return DeviceMesh(root_state(root, {group ? group : default_group()}));
}

DeviceMesh DeviceMesh::from_group(const std::vector<Group>& groups, std::string device_type,
                                  const AxisNames& axis_names, const std::optional<at::Tensor>& mesh) {
  TORCH_CHECK_VALUE(!groups.empty(), "Expects at least one ProcessGroup to be passed");
  TORCH_CHECK_VALUE(mesh, "Must pass mesh if passing multiple ProcessGroups");
  TORCH_CHECK_VALUE(!axis_names.empty(), "Must pass mesh_dim_names if passing multiple ProcessGroups");
  TORCH_CHECK_VALUE(mesh->dim() == static_cast<int64_t>(groups.size()),
                    "Expects mesh with ndim equal to number of ProcessGroups but got mesh ", mesh_text(*mesh), " and ",
                    groups.size(), " ProcessGroups");
  const auto root = make_root(std::move(device_type), numbers_in(*mesh), mesh->sizes().vec(), axis_names);
  root->rank = is_initialized() ? get_rank() : rank_by_groups(groups, mesh->to(at::kLong));
  return DeviceMesh(root_state(root, groups));
}

Group DeviceMesh::group() const {
  TORCH_CHECK(ndim() == 1, "Found the DeviceMesh have ", ndim(),
              " dimensions Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1. "
              "If you want to get the list of all the ProcessGroups in the DeviceMesh,"
              "please use `get_all_groups()` instead.");
  return group(0);
}

Group DeviceMesh::group(const MeshAxis& axis) const {
  const auto* flattened = axis.name ? state_->root->find_flattened(*axis.name) : nullptr;
  if (flattened && flattened->group) return flattened->group;
  const auto index = flattened ? 0 : mesh::axis_index(*state_, axis, "list index out of range");
  TORCH_CHECK_INDEX(!flattened && !state_->groups.empty(), "[cohort] Rank ", rank(), " is not in ", to_string(),
                    " and has no group of it");
  return state_->groups[index];
}

std::vector<Group> DeviceMesh::groups() const { return state_->groups; }

const std::optional<std::vector<int64_t>>& DeviceMesh::coordinate() const { return state_->coordinate; }

int64_t DeviceMesh::local_rank() const {
  TORCH_CHECK(ndim() <= 1, "Found the DeviceMesh have ", ndim(),
              " dimensions Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.");
  return local_rank(0);
}

int64_t DeviceMesh::local_rank(const MeshAxis& axis) const { return group(axis)->getRank(); }

int64_t DeviceMesh::rank() const { return state_->root->rank; }

int64_t DeviceMesh::size() const { return static_cast<int64_t>(state_->ranks.size()); }

int64_t DeviceMesh::size(const MeshAxis& axis) const {
  return state_->layout[mesh::axis_index(*state_, axis, "tuple index out of range")].num_places();
}

int64_t DeviceMesh::ndim() const { return static_cast<int64_t>(state_->layout.size()); }

std::vector<int64_t> DeviceMesh::shape() const { return mesh::shape_of(state_->layout); }

const DeviceMesh::AxisNames& DeviceMesh::axis_names() const { return state_->names; }

at::Tensor DeviceMesh::mesh() const { return tensor_of(state_->ranks, shape()); }

const std::string& DeviceMesh::device_type() const { return state_->root->device_type; }

std::vector<int64_t> DeviceMesh::group_order(const MeshAxis& axis) const {
  const auto index = mesh::axis_index(*state_, axis, "tuple index out of range");
  TORCH_CHECK(coordinate(), "[cohort] Rank ", rank(), " is not in ", to_string());
  auto line = mesh();
  for (int64_t other = ndim(); other-- > 0;) {
    if (other != index) line = line.select(other, (*coordinate())[other]);
  }
  const auto ranks = numbers_in(line);
  std::vector<int64_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  // A group that this process did not make itself counts as ordered like the mesh.
  const auto* record = known_record(state_->groups[index]);
  if (!record) return order;
  TORCH_CHECK_VALUE(record->ranks.size() == ranks.size(), "[cohort] The group of mesh dim ", index, " has ",
                    record->ranks.size(), " ranks, but the mesh ", ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto found = std::find(ranks.begin(), ranks.end(), record->ranks[i]);
    TORCH_CHECK_VALUE(found != ranks.end(), "[cohort] The group of mesh dim ", index, " has rank ", record->ranks[i],
                      ", but the mesh only [", c10::Join(", ", ranks), "]");
    order[i] = found - ranks.begin();
  }
  return order;
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  if (state_ == other.state_) return true;
  return state_->root->ranks == other.state_->root->ranks && state_->layout == other.state_->layout &&
         device_type() == other.device_type() && axis_names() == other.axis_names();
}

size_t DeviceMesh::hash() const {
  size_t result = c10::get_hash(device_type(), state_->root->ranks, axis_names());
  for (const auto& axis : state_->layout) result = c10::hash_combine(result, c10::get_hash(axis.sizes, axis.strides));
  return result;
}

std::string DeviceMesh::to_string() const {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < state_->names.size(); ++i) {
    sizes.push_back(c10::str(state_->names[i], "=", state_->layout[i].num_places()));
  }
  const auto text = sizes.empty() ? mesh::tuple_text(shape()) : c10::str("(", c10::Join(", ", sizes), ")");
  const bool is_detailed = base::get_env("TORCH_DISTRIBUTED_DEBUG") == "DETAIL";
  return c10::str("DeviceMesh(", text, ", '", device_type(), "', stride=", mesh::strides_text(state_->layout),
                  is_detailed ? ", Mesh: " + mesh_text(mesh()) : "", ")");
}

}  // namespace cohort
