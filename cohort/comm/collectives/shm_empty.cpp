#include "cohort/comm/collectives/shm_empty.h"

#include <c10/util/Exception.h>

#include "cohort/comm/backend/memory_sharer.h"
#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/group/world.h"
#include "cohort/job/call_site.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {
namespace {

MemorySharer* sharer_of(c10d::Backend& backend) {
  return dynamic_cast<MemorySharer*>(find_serving(backend, c10::DeviceType::CPU));
}

}  // namespace

bool has_shared_memory(const Group& group) {
  return is_member(group) && capability_of(group, c10::DeviceType::CPU).shares_memory;
}

bool shares_tensors(const Group& group) {
  if (!has_shared_memory(group)) return false;
  const auto backend = any_backend(group);
  const auto* const sharer = sharer_of(*backend);
  return sharer && sharer->shares_tensors();
}

shm::CommonMemory make_common_memory(size_t num_bytes, bool has_pages, const Group& group) {
  const auto backend = any_backend(group);
  auto* const sharer = sharer_of(*backend);
  TORCH_CHECK_VALUE(sharer, "[cohort] the ranks of the given group share no memory");
  return sharer->make_common_memory(num_bytes, has_pages);
}

std::vector<shm::SharedMemoryPtr> arenas_of(const Group& group) {
  const auto backend = any_backend(group);
  auto* const sharer = sharer_of(*backend);
  return sharer ? sharer->arenas() : std::vector<shm::SharedMemoryPtr>();
}

at::Tensor shm_empty(at::IntArrayRef sizes, const at::TensorOptions& options, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(is_member(group), "[cohort] shm_empty: this rank is not a member of the given group");
  TORCH_CHECK_VALUE(options.device().is_cpu() && options.layout() == at::kStrided,
                    "[cohort] shm_empty makes dense CPU tensors, got ", options.device(), " and layout ",
                    options.layout());
  const auto backend = any_backend(group);
  auto* const sharer = sharer_of(*backend);
  if (!sharer) {
    const auto* record = world().default_group ? world().find(group) : nullptr;
    TORCH_CHECK_VALUE(false, "[cohort] shm_empty needs a group of backend \"shm\", but group \"",
                      record ? record->description : "?", "\" has \"", backend->getBackendName(),
                      "\"; name \"shm\" in init_process_group or new_group, or use at::empty");
  }
  return sharer->make_shared_tensor(sizes, options);
}

size_t shm_memory_allocated() { return shm::Group::num_allocated_bytes(); }

}  // namespace cohort::comm
