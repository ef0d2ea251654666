/// What a DeviceMesh is made of: what it shares with everything that is cut from the same mesh, and what is its own.
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

/// A mesh as it was built. It does not know what was cut from it, so nothing here keeps itself alive.
struct Root {
  struct Flattened {
    std::string name;
    AxisLayout layout;
    Group group;  ///< null on a rank that the mesh does not have
  };

  std::string device_type;
  std::vector<int64_t> ranks;  ///< what layouts point into
  Layout layout;
  DeviceMesh::AxisNames names;
  int64_t rank = 0;  ///< of this process
  std::vector<Flattened> flattened;
  /// Those that were made for this mesh. They go with it, or with the last who holds them.
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
  std::vector<std::shared_ptr<mesh::Root>> others = {};  ///< further meshes whose groups these are
  mesh::Layout layout;
  AxisNames names;
  std::vector<Group> groups;  ///< one per axis; none on a rank that the mesh does not have
  std::optional<std::vector<int64_t>> coordinate = {};
  std::vector<int64_t> ranks = {};  ///< of the copy of the layout that this rank is in, the last axis running fastest
};

namespace mesh {

/// Sets what follows from the other members. Throws c10::Error where the mesh is a slice that this rank is not in.
std::shared_ptr<const DeviceMesh::State> make_state(DeviceMesh::State state);

std::vector<int64_t> shape_of(const Layout& layout);
std::string names_text(const DeviceMesh::AxisNames& names);
/// Throws c10::Error, with init_device_mesh's texts.
void check_names(const DeviceMesh::AxisNames& names, int64_t num_axes);
/// Throws c10::IndexError with `text` for indices that are out of range.
int64_t axis_index(const DeviceMesh::State& state, const MeshAxis& axis, const char* text);

}  // namespace mesh
}  // namespace cohort
