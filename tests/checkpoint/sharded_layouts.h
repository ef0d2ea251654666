/// One state, laid out over the ranks as each strategy does it. Elements are known, so whoever loads it can tell.
#pragma once

#include <ATen/Functions.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard.h"

namespace cohort::test {

inline const std::vector<std::vector<int64_t>>& shapes_of_state() {
  static const std::vector<std::vector<int64_t>> shapes{{8, 6}, {5, 3}, {7}, {1, 4, 2}, {}, {0, 3}, {40, 9}};
  return shapes;
}

/// Element i of tensor k is 1000 k + i.
inline at::Tensor whole_tensor(size_t k) {
  int64_t count = 1;
  for (const int64_t length : shapes_of_state()[k]) count *= length;
  return (at::arange(count, at::kFloat) + 1000.0 * static_cast<double>(k)).view(shapes_of_state()[k]);
}

inline std::vector<std::string> layouts_for(int world_size) {
  std::vector<std::string> layouts{"ddp", "fsdp", "tp", "pp"};
  if (world_size % 2 == 0) layouts.insert(layouts.end(), {"hsdp", "strided"});
  return layouts;
}

inline checkpoint::StateValue part_of(const at::Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  const mesh::ShardSpec spec(mesh, placements, whole.sizes().vec(), whole.scalar_type());
  at::Tensor part = whole;
  const auto held = spec.held_ranges();
  for (size_t dim = 0; dim < held.size(); ++dim) {
    part = held[dim].empty() ? part.narrow(static_cast<int64_t>(dim), 0, 0)
                             : mesh::take_ranges(part, static_cast<int64_t>(dim), held[dim]);
  }
  return {part.clone(), spec};
}

/// The state of this rank. Tensors without a dimension to cut are whole, as strategies leave them.
inline checkpoint::ShardedStateDict laid_out(const std::string& layout) {
  const int world_size = get_world_size();
  checkpoint::ShardedStateDict state;
  const bool is_flat = layout == "fsdp" || layout == "tp";
  const DeviceMesh mesh = init_device_mesh(
      "cpu", is_flat || world_size % 2 ? std::vector<int64_t>{world_size} : std::vector<int64_t>{world_size / 2, 2});
  for (size_t k = 0; k < shapes_of_state().size(); ++k) {
    const at::Tensor whole = whole_tensor(k);
    const std::string key = "layer." + std::to_string(k) + ".weight";
    const int64_t dim = whole.dim();
    if (layout == "pp" && static_cast<int>(k) % world_size != get_rank()) continue;
    if (layout == "ddp" || layout == "pp" || dim == 0) {
      state.insert(key, whole.clone());
    } else if (layout == "fsdp") {
      state.insert(key, part_of(whole, mesh, {Shard(0)}));
    } else if (layout == "tp") {
      state.insert(key, part_of(whole, mesh, {Shard(dim > 1 ? 1 : 0)}));
    } else if (layout == "hsdp") {
      state.insert(key, part_of(whole, mesh, {Replicate(), Shard(0)}));
    } else {
      state.insert(key, part_of(whole, mesh, {StridedShard(0, 2), Shard(0)}));
    }
  }
  return state;
}

inline uint64_t bytes_of(const checkpoint::ShardedStateDict& state) {
  uint64_t sum = 0;
  for (const auto& item : state) sum += item.value().tensor.nbytes();
  return sum;
}

}  // namespace cohort::test
