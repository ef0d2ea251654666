#include "cohort/parallel/module/sharded_tensors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "cohort/dtensor/api/dtensor.h"

namespace cohort::parallel {
namespace {

struct TensorNotes {
  std::optional<TensorCut> cut = {};
  std::vector<Group> groups = {};  ///< what fully_shard says
  at::Tensor shard = {};           ///< defined: they are those of a whole
};

struct ShardedTensors {
  std::mutex mutex;
  std::unordered_map<const void*, TensorNotes> entries;
};

// Leaked on purpose: modules may go while the process exits.
ShardedTensors& sharded_tensors() {
  static auto* const all = new ShardedTensors;
  return *all;
}

TensorNotes entry_of(const at::Tensor& tensor) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(tensor.unsafeGetTensorImpl());
  return found == all.entries.end() ? TensorNotes() : found->second;
}

// What goes may be the last that holds a group, or a tensor: it goes after the lock.
template <class Change>
void change_entry(const at::Tensor& tensor, Change change) {
  TensorNotes last;
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  auto& entry = all.entries[tensor.unsafeGetTensorImpl()];
  last = entry;
  change(entry);
  if (!entry.cut && entry.groups.empty()) all.entries.erase(tensor.unsafeGetTensorImpl());
}

std::vector<Group> noted_groups(const at::Tensor& tensor) {
  const auto entry = entry_of(tensor);
  if (!entry.groups.empty() || !entry.cut) return entry.groups;
  return {entry.cut->group};
}

}  // namespace

void note_cut(const at::Tensor& tensor, TensorCut cut) {
  change_entry(tensor, [&](TensorNotes& entry) { entry.cut = std::move(cut); });
}

void forget_cut(const at::Tensor& tensor) {
  change_entry(tensor, [](TensorNotes& entry) { entry.cut.reset(); });
}

std::optional<TensorCut> cut_of(const at::Tensor& tensor) { return entry_of(tensor).cut; }

std::vector<int64_t> whole_sizes(const at::Tensor& tensor, const TensorCut& cut) {
  auto sizes = tensor.sizes().vec();
  sizes.at(static_cast<size_t>(cut.dim)) = cut.size;
  return sizes;
}

void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others) {
  others.insert(others.begin(), group);
  change_entry(tensor, [&](TensorNotes& entry) {
    entry.groups = std::move(others);
    entry.shard.reset();
  });
}

void note_whole(const at::Tensor& tensor, const at::Tensor& shard, const Group& group) {
  change_entry(tensor, [&](TensorNotes& entry) {
    entry.groups = {group};
    entry.shard = shard;
  });
}

void forget_sharded(const at::Tensor& tensor) {
  change_entry(tensor, [](TensorNotes& entry) {
    entry.groups.clear();
    entry.shard.reset();
  });
}

bool is_of_fully_shard(const at::Tensor& tensor) { return !entry_of(tensor).groups.empty(); }

at::Tensor shard_of(const at::Tensor& tensor) { return entry_of(tensor).shard; }

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
  TORCH_CHECK_VALUE(!shard_of(tensor).defined(), "a parameter of shape ", tensor.sizes(),
                    " has been sharded by fully_shard: its gradient is in its shards. Pass what parameters() of the "
                    "wrapper gives, not the inner module's parameters.");
}

}  // namespace cohort::parallel
