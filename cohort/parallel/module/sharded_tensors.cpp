#include "cohort/parallel/module/sharded_tensors.h"

#include <mutex>
#include <unordered_map>

namespace cohort::parallel {
namespace {

struct ShardedTensors {
  std::mutex mutex;
  std::unordered_map<const void*, Group> groups;
};

// Leaked on purpose: modules may go while the process exits.
ShardedTensors& sharded_tensors() {
  static auto* const all = new ShardedTensors;
  return *all;
}

}  // namespace

void note_sharded(const at::Tensor& tensor, const Group& group) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  all.groups[tensor.unsafeGetTensorImpl()] = group;
}

void forget_sharded(const at::Tensor& tensor) {
  Group last;  // may be the last one that holds it: goes after the lock
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.groups.find(tensor.unsafeGetTensorImpl());
  if (found == all.groups.end()) return;
  last = std::move(found->second);
  all.groups.erase(found);
}

Group sharding_group(const at::Tensor& tensor) {
  auto& all = sharded_tensors();
  const std::lock_guard lock(all.mutex);
  const auto found = all.groups.find(tensor.unsafeGetTensorImpl());
  return found == all.groups.end() ? Group() : found->second;
}

}  // namespace cohort::parallel
