#include "cohort/mesh/mesh_groups.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "cohort/base/system/env.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/subgroups.h"

namespace cohort::mesh {
namespace {

bool is_plain(const AxisBackend& backend) { return backend.backend.empty() && !backend.timeout; }

// Follows PyTorch: on a machine with an accelerator whose default group uses Gloo, an axis with all ranks gets a second group.
Group group_of_all_ranks() {
  if (comm::accelerator() && get_backend() == "gloo") return new_group({}, {.group_desc = "mesh_default"});
  return default_group();
}

Group make_axis_group(const AxisLayout& axis, const std::vector<int64_t>& ranks, const std::string& name,
                      const AxisBackend& backend) {
  const auto world = default_group();
  if (axis.num_places() == world->getSize() && is_plain(backend)) return group_of_all_ranks();
  std::vector<std::vector<int>> lists;
  for (const auto& places : all_copies({axis}, static_cast<int64_t>(ranks.size()))) {
    auto& list = lists.emplace_back();
    for (const int64_t place : places) list.push_back(static_cast<int>(ranks[place]));
  }
  const std::string description = "mesh_" + name;
  // Ranks that are bound to a device have connected already: their groups split the existing connection.
  if (world->getBoundDeviceId() && comm::accelerator() && backend.backend.empty()) {
    return split_group(world, lists, {.timeout = backend.timeout, .group_desc = description});
  }
  Group own;
  for (const auto& list : lists) {
    const auto group =
        new_group(list, {.backend = backend.backend, .timeout = backend.timeout, .group_desc = description});
    if (is_member(group)) own = group;
  }
  return own;
}

}  // namespace

void set_up_world(const std::string& device_type, int64_t num_ranks) {
  if (!is_initialized()) init_process_group();
  const int world_size = get_world_size();
  TORCH_CHECK(num_ranks <= world_size, "Mesh should not be bigger than default world size ", world_size, ", but found ",
              num_ranks, " ranks!");
  if (device_type != "cpu" && comm::accelerator() && base::get_env("LOCAL_RANK")) current_device();
}

std::vector<AxisBackend> backend_of_each_axis(const DeviceMeshOptions& options, int64_t num_axes,
                                              const DeviceMesh::AxisNames& names) {
  std::vector<AxisBackend> result;
  std::vector<bool> is_used(options.backend_override.size());
  for (int64_t i = 0; i < num_axes; ++i) {
    const std::string name = names.empty() ? "" : names[i];
    result.push_back({.axis = i});
    bool is_found = false;
    for (size_t entry = 0; entry < is_used.size(); ++entry) {
      const auto& axis = options.backend_override[entry].axis;
      if (axis.name ? names.empty() || *axis.name != name : axis.index != i) continue;
      TORCH_CHECK(!is_found, "Found redundant dim index ", i, " and name ", name, " in backend_override");
      is_found = is_used[entry] = true;
      result.back() = options.backend_override[entry];
    }
  }
  std::vector<std::string> unknown;
  for (size_t entry = 0; entry < is_used.size(); ++entry) {
    const auto& axis = options.backend_override[entry].axis;
    if (!is_used[entry]) unknown.push_back(axis.name ? "'" + *axis.name + "'" : std::to_string(axis.index));
  }
  TORCH_CHECK(unknown.empty(), "Found invalid keys in backend_override: got [", c10::Join(", ", unknown),
              "], expected integers in range [0, ", num_axes, ") or one of ", names_text(names));
  return result;
}

std::vector<Group> make_groups(Root& root, const Layout& layout, const DeviceMesh::AxisNames& names,
                               const std::vector<AxisBackend>& backends) {
  std::vector<Group> groups;
  for (size_t i = 0; i < layout.size(); ++i) {
    const auto name = names.empty() ? c10::str("dim_", i) : names[i];
    auto group = make_axis_group(layout[i], root.ranks, name, backends[i]);
    if (!group) continue;
    if (group != default_group()) root.own_groups.push_back(group);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace cohort::mesh
