/// A mesh for ranks that are threads (tests/support/rank_threads.h), which have no default group.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "tests/support/rank_threads.h"

namespace cohort::test {

/// Of all ranks of `group`, in their order.
inline DeviceMesh thread_mesh(const Group& group, const std::vector<int64_t>& shape) {
  const auto ranks = at::arange(group->getSize(), at::kLong).view(shape);
  std::vector<Group> groups;
  std::vector<std::string> names;
  for (int64_t axis = 0; axis < ranks.dim(); ++axis) {
    const auto lines = ranks.movedim(axis, -1).reshape({-1, shape[axis]});
    // Lists of other axes stay empty: their number is part of the groups' keys.
    std::vector<std::vector<int>> lists(axis * group->getSize());
    for (int64_t i = 0; i < lines.size(0); ++i) {
      auto& list = lists.emplace_back();
      for (int64_t j = 0; j < lines.size(1); ++j) list.push_back(static_cast<int>(lines[i][j].item<int64_t>()));
    }
    groups.push_back(split_rank_threads(group, lists));
    names.push_back("axis" + std::to_string(axis));
  }
  return DeviceMesh::from_group(groups, "cpu", names, ranks);
}

}  // namespace cohort::test
