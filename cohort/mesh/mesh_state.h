/// The state of a DeviceMesh: a root, shared by all slices of one mesh, and the slice's own members.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/mesh_layout.h"

namespace cohort {
namespace mesh {

/// A mesh as it was built. It does not know its slices, so it does not keep itself alive.
struct Root {
  struct Flattened {
    std::string name;
    AxisLayout layout;
    Group group;  ///< null on a rank outside of the mesh
  };

  std::string device_type;
  std::vector<int64_t> ranks;  ///< entries of layouts are indices into this
  Layout layout;
  DeviceMesh::AxisNames names;
  int64_t rank = 0;  ///< this process's rank
  std::vector<Flattened> flattened;
  /// Groups that were made for this mesh. They end with it, or with their last holder.
  std::vector<Group> own_groups;

  Root() = default;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root();
  const Flattened* find_flattened(const std::string& name) const;
};

}  // namespace mesh

struct DeviceMesh::State {
  std::shared_ptr<mesh::Root> root;
  std::vector<std::shared_ptr<mesh::Root>> others = {};  ///< further roots that own some of the groups
  mesh::Layout layout;
  AxisNames names;
  std::vector<Group> groups;  ///< one per axis; empty on a rank outside of the mesh
  std::optional<std::vector<int64_t>> coordinate = {};
  /// Ranks of the layout's copy that this rank is in, the last axis running fastest.
  std::vector<int64_t> ranks = {};
};

namespace mesh {

/// Computes the members that follow from the others. Throws c10::Error if the mesh is a slice that this rank is not in.
std::shared_ptr<const DeviceMesh::State> make_state(DeviceMesh::State state);

std::vector<int64_t> shape_of(const Layout& layout);
std::string names_text(const DeviceMesh::AxisNames& names);
/// Throws c10::Error with init_device_mesh's texts.
void check_names(const DeviceMesh::AxisNames& names, int64_t num_axes);
/// Returns the axis' index. Throws c10::IndexError with `text` for an index out of range.
int64_t axis_index(const DeviceMesh::State& state, const MeshAxis& axis, const char* text);

}  // namespace mesh
}  // namespace cohort
