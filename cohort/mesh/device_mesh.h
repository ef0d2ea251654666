/// DeviceMesh: the ranks of a job as an array with named axes, and a process group along each axis.
///
///     const auto mesh = init_device_mesh("cpu", {2, 4}, {"dp", "tp"});   // ranks 0-3 above ranks 4-7
///     all_reduce(tensor, {.group = mesh.group("tp")});                   // over this rank's row
///     const auto dp = mesh["dp"];                                        // this rank's column, with the same group
///
/// A value: copies share one state. Each group is made once. It ends with the last copy of the mesh and the last other holder,
/// as soon as a later group shows that all ranks have made it. Layouts, groups, their order and names, and error texts follow
/// torch/distributed/device_mesh.py of PyTorch 2.13.
///
/// Collective: every rank of the default group must call what makes groups (constructors, flatten, unflatten), in the same
/// order and with the same arguments. Everything else is local. Thread-safety: as for process groups, one thread at a time.
/// Throws: c10::Error, c10::ValueError and, where Python has KeyError or IndexError, c10::IndexError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

/// An axis of a mesh, by its name or its index; negative indices count from the end.
class MeshAxis {
 public:
  MeshAxis(int64_t index) : index(index) {}  // implicit on purpose: mesh.group(0), mesh.group("tp")
  MeshAxis(int index) : index(index) {}
  MeshAxis(const char* name) : name(name) {}
  MeshAxis(std::string name) : name(std::move(name)) {}
  std::optional<std::string> name = {};
  int64_t index = 0;
};

/// Differences between the groups of one axis and the default group.
struct AxisBackend {
  MeshAxis axis;
  /// As NewGroupOptions::backend.
  std::string backend = {};
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct DeviceMeshOptions {
  /// Overrides, at most one for each axis.
  std::vector<AxisBackend> backend_override = {};
};

class COHORT_API DeviceMesh {
 public:
  using AxisNames = std::vector<std::string>;

  /// Makes a mesh from an array of default-group ranks: an integer tensor with any number of dimensions. If `axis_names` is
  /// empty, the axes have no names. Creates the default group from the environment if it does not exist, and one group for
  /// each line of ranks along each axis. An axis with all ranks uses the default group. Ranks outside of the mesh take part
  /// and get a mesh without groups. If the device type is an accelerator's, LOCAL_RANK is set and no device is chosen yet, this
  /// chooses that device (device.h).
  /// Throws c10::Error if the mesh is larger than the world, or for not as many names as axes; c10::ValueError for a mesh
  /// without ranks or with a rank twice.
  DeviceMesh(std::string device_type, const at::Tensor& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});
  /// As above, from lists: DeviceMesh("cpu", {0, 1}) and DeviceMesh("cpu", {{0, 1}, {2, 3}}).
  DeviceMesh(std::string device_type, const std::vector<int64_t>& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});
  DeviceMesh(std::string device_type, const std::vector<std::vector<int64_t>>& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});

  /// Makes a mesh of one axis from an existing group. Local. `mesh`, if given, must be the group's ranks (c10::ValueError).
  static DeviceMesh from_group(const Group& group, std::string device_type, const AxisNames& axis_names = {},
                               const std::optional<at::Tensor>& mesh = std::nullopt);
  /// Makes a mesh from one group per axis. Local. `mesh` and `axis_names` are required (c10::ValueError). The groups may be
  /// unknown to init_process_group: without a default group, this rank's ranks in the groups give its place.
  static DeviceMesh from_group(const std::vector<Group>& groups, std::string device_type, const AxisNames& axis_names,
                               const std::optional<at::Tensor>& mesh);

  /// Returns the axis `axis_name` alone, with its group: the line of ranks that this rank is in. Also takes a name from
  /// flatten().
  /// Throws c10::IndexError for other names, and c10::Error on a rank outside of the mesh.
  DeviceMesh operator[](const std::string& axis_name) const;
  DeviceMesh operator[](int) const = delete;
  /// Returns several axes; they must be in the mesh's order (c10::IndexError).
  DeviceMesh slice(const AxisNames& axis_names) const;
  /// Returns all axes as one, with a group of its own. Makes it once: a second call with the same name returns the same mesh.
  /// From then on slices of the full mesh and group() of every slice know the name. If `axis_name` is empty, it is the names
  /// of the axes joined with "_".
  /// Throws c10::ValueError for a name that an axis or another flattened mesh has, c10::Error without axis names.
  DeviceMesh flatten(const std::string& axis_name = {}, const std::string& backend = {}) const;
  /// Splits one axis into several; the other axes keep their groups.
  /// Throws c10::ValueError if the sizes' product is not the axis' size.
  DeviceMesh unflatten(const MeshAxis& axis, const std::vector<int64_t>& sizes, const AxisNames& axis_names,
                       const DeviceMeshOptions& options = {}) const;
  /// Returns the axes of several slices of one mesh, side by side, with their groups. Local.
  /// Throws c10::Error for slices of different meshes, and for slices that overlap.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  /// Returns this rank's group along `axis`; without an argument the mesh must have exactly one axis (c10::Error).
  Group group() const;
  Group group(const MeshAxis& axis) const;
  /// Returns one group per axis, or an empty vector on a rank outside of the mesh.
  std::vector<Group> groups() const;

  /// Returns this rank's index on each axis; absent on a rank outside of the mesh.
  const std::optional<std::vector<int64_t>>& coordinate() const;
  /// Returns this rank's number in group(axis).
  int64_t local_rank() const;
  int64_t local_rank(const MeshAxis& axis) const;
  /// This process's rank in the default group.
  int64_t rank() const;
  /// Returns the number of ranks, on all axes or along one.
  int64_t size() const;
  int64_t size(const MeshAxis& axis) const;
  int64_t ndim() const;
  std::vector<int64_t> shape() const;
  const AxisNames& axis_names() const;
  /// Returns the ranks as an int64 tensor on the CPU; for a slice, the copy that this rank is in.
  at::Tensor mesh() const;
  const std::string& device_type() const;
  /// Returns the index on `axis` of each rank of group(axis), in the order of the group's ranks.
  /// Throws c10::Error on a rank outside of the mesh.
  std::vector<int64_t> group_order(const MeshAxis& axis) const;

  /// Whether ranks, layout, names and device type are the same; does not compare groups.
  bool operator==(const DeviceMesh& other) const;
  size_t hash() const;
  /// Returns Python's repr: "DeviceMesh((dp=2, tp=4), 'cpu', stride=(4, 1))"; with TORCH_DISTRIBUTED_DEBUG=DETAIL also the
  /// ranks.
  std::string to_string() const;

  struct State;

 private:
  explicit DeviceMesh(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Makes a mesh of all ranks, in their order, as the constructor of DeviceMesh does. `device_type`: "cpu", "cuda" or another
/// device type of LibTorch, without an index. `axis_names`: empty, or one name per axis, all different (c10::Error).
COHORT_API DeviceMesh init_device_mesh(const std::string& device_type, c10::IntArrayRef shape,
                                       const DeviceMesh::AxisNames& axis_names = {},
                                       const DeviceMeshOptions& options = {});

inline std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) { return out << mesh.to_string(); }

}  // namespace cohort

template <>
struct std::hash<cohort::DeviceMesh> {
  size_t operator()(const cohort::DeviceMesh& mesh) const { return mesh.hash(); }
};
