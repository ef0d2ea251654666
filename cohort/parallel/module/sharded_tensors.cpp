#include "cohort/parallel/module/sharded_tensors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "cohort/dtensor/api/dtensor.h"

namespace cohort::parallel {
namespace {

struct ShardedTensors {
  std::mutex mutex;
  struct Entry {
    std::vector<Group> groups;
    bool is_whole = false;
  };
  std::unordered_map<const void*, Entry> entries;
};

// Leaked on purpose: modules may go while the process exits.
ShardedTensors& sharded_tensors() {
  static auto* const all = new ShardedTensors;
  return *all;
}

void note_entry(const at::Tensor& tensor, ShardedTensors::Entry entry) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  std::swap(all.entries[tensor.unsafeGetTensorImpl()], entry);
}

bool is_known_whole(const at::Tensor& tensor) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(tensor.unsafeGetTensorImpl());
  return found != all.entries.end() && found->second.is_whole;
}

std::vector<Group> noted_groups(const at::Tensor& tensor) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(tensor.unsafeGetTensorImpl());
  return found == all.entries.end() ? std::vector<Group>() : found->second.groups;
}

}  // namespace

void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others) {
  others.insert(others.begin(), group);
  note_entry(tensor, {std::move(others), false});
}

void note_whole(const at::Tensor& tensor, const Group& group) { note_entry(tensor, {{group}, true}); }

void forget_sharded(const at::Tensor& tensor) {
  ShardedTensors::Entry last{};  // may be the last one that holds the group: goes after the lock
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(tensor.unsafeGetTensorImpl());
  if (found == all.entries.end()) return;
  last = std::move(found->second);
  all.entries.erase(found);
}

Group sharding_group(const at::Tensor& tensor) {
  const auto groups = noted_groups(tensor);
  return groups.empty() ? Group() : groups.front();
}

std::vector<Group> sharding_groups(const at::Tensor& tensor) {
  std::vector<Group> groups;
  if (is_dtensor(tensor)) {
    const DTensor parts(tensor);
    const auto& mesh = parts.device_mesh();
    for (int64_t axis = 0; mesh.coordinate() && axis < mesh.ndim(); ++axis) {
      const bool is_cut = parts.placements()[axis].is_shard_like() && mesh.size(axis) > 1;
      if (is_cut) groups.push_back(mesh.group(axis));
    }
  }
  for (const auto& group : noted_groups(tensor)) {
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

at::Tensor own_part(const at::Tensor& tensor) {
  if (!is_dtensor(tensor)) return tensor;
  const DTensor parts(tensor.detach());
  auto placements = parts.placements();
  for (auto& placement : placements) placement = placement.is_partial() ? Placement(Replicate()) : placement;
  return parts.redistribute(placements).sharded().local;
}

void check_has_own_gradient(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(!is_known_whole(tensor), "a parameter of shape ", tensor.sizes(),
                    " has been sharded by fully_shard: its gradient is in its shards. Pass what parameters() of the "
                    "wrapper gives, not the inner module's parameters.");
}

}  // namespace cohort::parallel
