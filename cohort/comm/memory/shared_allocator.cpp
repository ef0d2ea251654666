#include "cohort/comm/memory/shared_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "cohort/base/system/env.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/shm/arena/process_arena.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {
namespace {

std::atomic<bool> is_installed = false;
// The requested size, 0 without one; a forked child's allocator uses it, too.
std::atomic<size_t> reserved_bytes = 0;
std::atomic<size_t> least_bytes = SharedAllocatorOptions().least_bytes;

// LibTorch's allocator before ours: serves small tensors, and large ones that do not fit.
c10::Allocator& fallback() {
  static auto* const allocator = c10::GetCPUAllocator();
  return *allocator;
}

void release_block(void* block) {
  auto* const arena = shm::arena_of(block);
  if (!arena) return fallback().raw_deleter()(block);
  c10::profiledCPUMemoryReporter().Delete(block);
  arena->release(block);
}

class SharedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    auto* const arena = num_bytes < least_bytes ? nullptr : shm::process_arena();
    auto* const block = arena ? arena->take(num_bytes) : nullptr;
    if (!block) return owned(fallback().raw_allocate(num_bytes));
    c10::profiledCPUMemoryReporter().New(block, num_bytes);
    return owned(block);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }

 private:
  // One deleter for every kind of block: LibTorch compares deleters.
  static c10::DataPtr owned(void* block) { return {block, block, &release_block, c10::Device(c10::kCPU)}; }
};

// Never destroyed: tensors may outlive main().
SharedAllocator& own_allocator() {
  static auto* const allocator = new SharedAllocator;
  return *allocator;
}

}  // namespace

void use_shared_allocator(const SharedAllocatorOptions& options) {
  TORCH_CHECK_VALUE(
      options.reserved_bytes != size_t{0},
      "[cohort] use_shared_allocator: reserved_bytes is at least 1, but got 0\n  hint: leave it out for the "
      "size of the host's memory");
  if (options.reserved_bytes) reserved_bytes = *options.reserved_bytes;
  const auto arena = shm::make_process_arena(reserved_bytes);
  if (!arena) {
    comm::throw_error(base::Error("use_shared_allocator cannot reserve memory for tensors").caused_by(arena.error()));
  }
  if (is_installed.exchange(true)) return;
  least_bytes = std::max<size_t>(options.least_bytes, 1);
  fallback();  // initialized before it is replaced
  c10::SetCPUAllocator(&own_allocator(), /*priority=*/100);
  if (c10::GetCPUAllocator() == &own_allocator()) return;
  is_installed = false;
  comm::throw_error(
      base::Error(
          "use_shared_allocator: another library has set LibTorch's allocator for CPU tensors, with a higher priority")
          .with_hint("use only one of the two: each allocates all CPU tensors"));
}

bool has_shared_allocator() {
  return is_installed && c10::GetCPUAllocator() == &own_allocator() && shm::process_arena() != nullptr;
}

void empty_shared_allocator_cache() {
  if (auto* const arena = shm::process_arena()) arena->give_back();
}

SharedAllocatorStats shared_allocator_stats() {
  const auto* const arena = shm::process_arena();
  if (!arena) return {};
  const auto stats = arena->stats();
  return {stats.reserved_bytes,    stats.used_bytes,   stats.peak_used_bytes, stats.cached_bytes,
          stats.quarantined_bytes, stats.num_recycled, stats.num_fresh,       stats.num_refused};
}

void apply_shared_allocator(bool is_wanted) {
  const auto variable = comm::or_throw_value(base::env_bool("COHORT_SHARED_ALLOCATOR"));
  if (is_wanted || is_installed || variable.value_or(false)) use_shared_allocator();
}

void set_staged_bytes(size_t num_bytes) { shm::Group::set_staged_bytes(num_bytes); }

}  // namespace cohort::comm
