#include "cohort/mesh/mesh_state.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "cohort/comm/group/group_creation.h"

namespace cohort::mesh {
namespace {

// Returns the copy of the layout that this rank is in. A single copy is returned even if this rank is not in it.
std::vector<int64_t> own_copy(const Root& root, const Layout& layout) {
  const auto copies = all_copies(layout, static_cast<int64_t>(root.ranks.size()));
  std::vector<int64_t> ranks;
  for (const auto& copy : copies) {
    ranks.clear();
    for (const int64_t entry : copy) ranks.push_back(root.ranks[entry]);
    if (copies.size() == 1 || std::find(ranks.begin(), ranks.end(), root.rank) != ranks.end()) return ranks;
  }
  TORCH_CHECK(false,
              "In order to get the mesh Tensor of a DeviceMesh it needs to either have all its original dimensions "
              "(e.g., no slicing) or it needs to contain the local rank");
}

std::optional<std::vector<int64_t>> coordinate_of(int64_t rank, const std::vector<int64_t>& ranks,
                                                  const std::vector<int64_t>& shape) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return std::nullopt;
  int64_t place = found - ranks.begin();
  std::vector<int64_t> coordinate(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    coordinate[axis] = place % shape[axis];
    place /= shape[axis];
  }
  return coordinate;
}

}  // namespace

Root::~Root() {
  flattened.clear();  // also holds groups
  while (!own_groups.empty()) {
    auto group = std::move(own_groups.back());
    own_groups.pop_back();
    comm::release_group(std::move(group));
  }
}

const Root::Flattened* Root::find_flattened(const std::string& name) const {
  const auto found =
      std::find_if(flattened.begin(), flattened.end(), [&](const auto& entry) { return entry.name == name; });
  return found == flattened.end() ? nullptr : &*found;
}

std::shared_ptr<const DeviceMesh::State> make_state(DeviceMesh::State state) {
  state.ranks = own_copy(*state.root, state.layout);
  state.coordinate = coordinate_of(state.root->rank, state.ranks, shape_of(state.layout));
  return std::make_shared<const DeviceMesh::State>(std::move(state));
}

std::vector<int64_t> shape_of(const Layout& layout) {
  std::vector<int64_t> shape;
  for (const auto& axis : layout) shape.push_back(axis.num_places());
  return shape;
}

std::string names_text(const DeviceMesh::AxisNames& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names) quoted.push_back("'" + name + "'");
  return c10::str("(", c10::Join(", ", quoted), names.size() == 1 ? ",)" : ")");
}

void check_names(const DeviceMesh::AxisNames& names, int64_t num_axes) {
  if (names.empty()) return;
  TORCH_CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size(),
              "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names ", names_text(names));
  TORCH_CHECK(static_cast<int64_t>(names.size()) == num_axes,
              "mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): ", names.size(),
              " and len(mesh_shape):", num_axes, ".");
}

int64_t axis_index(const DeviceMesh::State& state, const MeshAxis& axis, const char* text) {
  const auto num_axes = static_cast<int64_t>(state.layout.size());
  if (!axis.name) {
    TORCH_CHECK_INDEX(axis.index >= -num_axes && axis.index < num_axes, text);
    return axis.index < 0 ? axis.index + num_axes : axis.index;
  }
  TORCH_CHECK_INDEX(!state.names.empty(), "No `mesh_dim_names` found.");
  const auto found = std::find(state.names.begin(), state.names.end(), *axis.name);
  TORCH_CHECK_INDEX(found != state.names.end(), "Mesh dimension '", *axis.name,
                    "' does not exist. Available mesh dimensions are: mesh_dim_names=", names_text(state.names));
  return found - state.names.begin();
}

}  // namespace cohort::mesh
