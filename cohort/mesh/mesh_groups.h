/// The process groups of a mesh: one for each line of ranks along an axis.
#pragma once

#include <string>
#include <vector>

#include "cohort/mesh/mesh_state.h"

namespace cohort::mesh {

/// Creates the default group if it does not exist, and chooses the device of this process. Throws c10::Error if `num_ranks` is
/// larger than the world.
void set_up_world(const std::string& device_type, int64_t num_ranks);

/// Returns the backend for each axis, from options for some of them. Throws c10::Error with PyTorch's texts.
std::vector<AxisBackend> backend_of_each_axis(const DeviceMeshOptions& options, int64_t num_axes,
                                              const DeviceMesh::AxisNames& names);

/// Makes this rank's group along each axis of `layout`, whose entries are indices into the root's ranks. Returns an empty vector
/// if this rank is not among them. The root owns groups that are new. Collective. Follows DeviceMesh._init_process_groups: the
/// same calls in the same order, so that Python ranks can take part.
std::vector<Group> make_groups(Root& root, const Layout& layout, const DeviceMesh::AxisNames& names,
                               const std::vector<AxisBackend>& backends);

}  // namespace cohort::mesh
