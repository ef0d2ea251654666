#include "cohort/data/loader/batch_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <utility>

namespace cohort::data::detail {
namespace {

thread_local BatchMemory* memory_of_thread = nullptr;

}  // namespace

// The context of a storage, which returns the block to the memory.
struct BatchMemory::Lease {
  std::shared_ptr<BatchMemory> memory;
  Block block;

  static void end(void* context) {
    const std::unique_ptr<Lease> lease(static_cast<Lease*>(context));
    lease->memory->give_back(lease->block);
  }
};

BatchMemory::Scope::Scope(const std::shared_ptr<BatchMemory>& memory)
    : before_(std::exchange(memory_of_thread, memory.get())) {}
BatchMemory::Scope::~Scope() { memory_of_thread = before_; }

BatchMemory* BatchMemory::current() { return memory_of_thread; }

BatchMemory::~BatchMemory() {
  for (const Block& block : free_) c10::free_cpu(block.data);
}

// Takes the most recently returned block that fits without waste, as its pages are likely to be in a cache.
BatchMemory::Block BatchMemory::take(size_t num_bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Block& block) {
      return block.num_bytes >= num_bytes && block.num_bytes - num_bytes <= num_bytes / 4;
    };
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) {
      const Block block = *found;
      free_.erase(std::next(found).base());
      return block;
    }
  }
  return {c10::alloc_cpu(num_bytes), num_bytes};
}

void BatchMemory::give_back(Block block) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
    if (free_.size() <= most_free_) return;
    block = free_.front();
    free_.erase(free_.begin());
  }
  c10::free_cpu(block.data);
}

at::Tensor BatchMemory::make_empty(at::IntArrayRef sizes, at::ScalarType type) {
  const size_t num_bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  auto lease = std::make_unique<Lease>(Lease{shared_from_this(), take(num_bytes)});
  void* data = lease->block.data;
  c10::DataPtr pointer(data, lease.release(), &Lease::end, c10::Device(c10::kCPU));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), num_bytes, std::move(pointer), c10::GetCPUAllocator(),
                             /*resizable=*/true);
  return at::empty({0}, type).set_(storage, 0, sizes);
}

}  // namespace cohort::data::detail
