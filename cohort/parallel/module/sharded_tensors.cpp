#include "cohort/parallel/module/sharded_tensors.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <unordered_map>
#include <utility>

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

std::vector<Group> sharding_groups(const at::Tensor& tensor) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(tensor.unsafeGetTensorImpl());
  return found == all.entries.end() ? std::vector<Group>() : found->second.groups;
}

Group sharding_group(const at::Tensor& tensor) {
  const auto groups = sharding_groups(tensor);
  return groups.empty() ? Group() : groups.front();
}

void check_has_own_gradient(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(!is_known_whole(tensor), "a parameter of shape ", tensor.sizes(),
                    " has been sharded by fully_shard: its gradient is in its shards. Pass what parameters() of the "
                    "wrapper gives, not the inner module's parameters.");
}

}  // namespace cohort::parallel
