/// DeviceMesh: the ranks of a job as an array with named axes, and a process group along each of them.
///
///     const auto mesh = init_device_mesh("cpu", {2, 4}, {"dp", "tp"});   // ranks 0-3 above ranks 4-7
///     all_reduce(tensor, {.group = mesh.group("tp")});                   // over this rank's row
///     const auto dp = mesh["dp"];                                        // this rank's column, with the same group
///
/// A value: copies share one state. Groups are made once. They end with the last copy, or with the last who holds them, as
/// soon as a later group shows that all ranks have made them. Follows torch/distributed/device_mesh.py of PyTorch 2.13:
/// layouts, groups, their order and names, texts of errors.
///
/// Collective: whatever makes groups (constructors, flatten, unflatten) must be called by every rank of the default
/// group, in the same order and with the same arguments. Everything else is local. Thread-safety: as for process
/// groups, one thread at a time.
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
  MeshAxis(int64_t index) : index(index) {}  // these are implicit on purpose: mesh.group(0), mesh.group("tp")
  MeshAxis(int index) : index(index) {}
  MeshAxis(const char* name) : name(name) {}
  MeshAxis(std::string name) : name(std::move(name)) {}
  std::optional<std::string> name = {};
  int64_t index = 0;
};

/// How the groups of one axis differ from the default group.
struct AxisBackend {
  MeshAxis axis;
  /// As NewGroupOptions::backend.
  std::string backend = {};
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct DeviceMeshOptions {
  /// At most one for each axis.
  std::vector<AxisBackend> backend_override = {};
};

class COHORT_API DeviceMesh {
 public:
  using AxisNames = std::vector<std::string>;

  /// From an array of default-group ranks, an integer tensor of any number of dimensions. No axis names: {}.
  /// Creates the default group from the environment if there is none, and a group for each line of ranks along each
  /// axis. An axis that has all ranks uses the default group. Ranks that the mesh does not have take part, and get a
  /// mesh without groups. With an accelerator's device type, LOCAL_RANK set and no device chosen yet, chooses that
  /// device (device.h).
  /// Throws c10::Error for a mesh larger than the world, or not as many names as axes; c10::ValueError for a mesh
  /// without ranks or with a rank twice.
  DeviceMesh(std::string device_type, const at::Tensor& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});
  /// The same from lists: DeviceMesh("cpu", {0, 1}) and DeviceMesh("cpu", {{0, 1}, {2, 3}}).
  DeviceMesh(std::string device_type, const std::vector<int64_t>& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});
  DeviceMesh(std::string device_type, const std::vector<std::vector<int64_t>>& mesh, const AxisNames& axis_names = {},
             const DeviceMeshOptions& options = {});

  /// A mesh of one axis whose group exists. Local. `mesh`, if given, must be the group's ranks (c10::ValueError).
  static DeviceMesh from_group(const Group& group, std::string device_type, const AxisNames& axis_names = {},
                               const std::optional<at::Tensor>& mesh = std::nullopt);
  /// One group per axis. Local. `mesh` and `axis_names` are required (c10::ValueError). Groups that init_process_group
  /// does not know will do: without a default group this rank stands where its ranks in the groups say.
  static DeviceMesh from_group(const std::vector<Group>& groups, std::string device_type, const AxisNames& axis_names,
                               const std::optional<at::Tensor>& mesh);

  /// The axis `axis_name` alone, with its group: the line of ranks that this rank is in. Also of a name that flatten()
  /// gave.
  /// Throws c10::IndexError for other names, and c10::Error on a rank that the mesh does not have.
  DeviceMesh operator[](const std::string& axis_name) const;
  DeviceMesh operator[](int) const = delete;
  /// Several axes, in the order in which the mesh has them (c10::IndexError).
  DeviceMesh slice(const AxisNames& axis_names) const;
  /// All axes as one, with a group of its own, made once: a second call with the same name gives the same. From then on
  /// slicing the whole mesh knows the name, and group() of every slice. Empty: the names of the axes joined by "_".
  /// Throws c10::ValueError for a name that an axis or another flattened mesh has, c10::Error without axis names.
  DeviceMesh flatten(const std::string& axis_name = {}, const std::string& backend = {}) const;
  /// One axis as several; the others keep their groups.
  /// Throws c10::ValueError if the sizes' product is not the axis' size.
  DeviceMesh unflatten(const MeshAxis& axis, const std::vector<int64_t>& sizes, const AxisNames& axis_names,
                       const DeviceMeshOptions& options = {}) const;
  /// The axes of several slices of one mesh, side by side, with their groups. Local.
  /// Throws c10::Error for slices of different meshes, or that overlap.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  /// This rank's group along `axis`; without one, of a mesh that has one axis only (c10::Error).
  Group group() const;
  Group group(const MeshAxis& axis) const;
  /// One per axis; none on a rank that the mesh does not have.
  std::vector<Group> groups() const;

  /// This rank's place, an index per axis; nothing if the mesh does not have it.
  const std::optional<std::vector<int64_t>>& coordinate() const;
  /// Rank in group(axis).
  int64_t local_rank() const;
  int64_t local_rank(const MeshAxis& axis) const;
  /// This process's rank in the default group.
  int64_t rank() const;
  /// Number of ranks, of all axes or along one.
  int64_t size() const;
  int64_t size(const MeshAxis& axis) const;
  int64_t ndim() const;
  std::vector<int64_t> shape() const;
  const AxisNames& axis_names() const;
  /// The ranks as an int64 tensor on the CPU; of a slice, the one that this rank is in.
  at::Tensor mesh() const;
  const std::string& device_type() const;
  /// Along `axis` through this rank: the index on the axis of each rank of group(axis), in the group's order, which is
  /// that of ranks.
  /// Throws c10::Error on a rank that the mesh does not have.
  std::vector<int64_t> group_order(const MeshAxis& axis) const;

  /// Same ranks, layout, names and device type; groups are not compared.
  bool operator==(const DeviceMesh& other) const;
  size_t hash() const;
  /// Python's repr: "DeviceMesh((dp=2, tp=4), 'cpu', stride=(4, 1))", with TORCH_DISTRIBUTED_DEBUG=DETAIL the ranks
  /// too.
  std::string to_string() const;

  struct State;

 private:
  explicit DeviceMesh(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// A mesh of all ranks, in their order. As the constructor of DeviceMesh; `device_type` is "cpu", "cuda" or another one
/// of LibTorch's, without index. `axis_names`: {} or one per axis, all different (c10::Error).
COHORT_API DeviceMesh init_device_mesh(const std::string& device_type, c10::IntArrayRef shape,
                                       const DeviceMesh::AxisNames& axis_names = {},
                                       const DeviceMeshOptions& options = {});

inline std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) { return out << mesh.to_string(); }

}  // namespace cohort

template <>
struct std::hash<cohort::DeviceMesh> {
  size_t operator()(const cohort::DeviceMesh& mesh) const { return mesh.hash(); }
};
