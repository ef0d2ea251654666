/// The process groups of a mesh: one for each line of ranks along an axis.
#pragma once

#include <string>
#include <vector>

#include "cohort/mesh/mesh_state.h"

namespace cohort::mesh {

/// The default group, made if there is none, and the device of this process. Throws c10::Error for more than the
/// world's ranks.
void set_up_world(const std::string& device_type, int64_t num_ranks);

/// What each axis of a mesh asks for, from options that name some of them. Throws c10::Error with PyTorch's texts.
std::vector<AxisBackend> backend_of_each_axis(const DeviceMeshOptions& options, int64_t num_axes,
                                              const DeviceMesh::AxisNames& names);

/// Collective: this rank's group along each axis of `layout`, which points into the root's ranks; none at all if these do not
/// include it. Those that are new become the root's own. Follows DeviceMesh._init_process_groups: the same calls in the same
/// order, so that Python ranks can take part.
std::vector<Group> make_groups(Root& root, const Layout& layout, const DeviceMesh::AxisNames& names,
                               const std::vector<AxisBackend>& backends);

}  // namespace cohort::mesh
