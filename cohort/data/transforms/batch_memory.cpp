#include "cohort/data/transforms/batch_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <utility>

namespace cohort::data {
namespace {

constexpr size_t kMostFreeBlocks = 8;

}  // namespace

std::shared_ptr<BatchMemory> BatchMemory::make() { return std::shared_ptr<BatchMemory>(new BatchMemory); }

at::Tensor BatchMemory::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  const size_t size = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  auto block = take(size);
  block->owner = shared_from_this();
  void* const memory = block->memory.get();
  c10::DataPtr pointer(memory, block.release(), &give_back, at::kCPU);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(pointer), c10::GetCPUAllocator(),
                             /*resizable=*/true);
  return at::empty({0}, dtype).set_(storage, 0, sizes);
}

std::unique_ptr<BatchMemory::Block> BatchMemory::take(size_t size) {
  {
    const std::lock_guard lock(mutex_);
    for (auto last = free_.rbegin(); last != free_.rend(); ++last) {
      if ((*last)->size < size) continue;
      auto block = std::move(*last);
      free_.erase(std::next(last).base());
      return block;
    }
  }
  return std::unique_ptr<Block>(new Block{c10::GetCPUAllocator()->allocate(size), size, nullptr});
}

void BatchMemory::give_back(void* pointer) {
  std::unique_ptr<Block> block(static_cast<Block*>(pointer));
  const auto owner = std::move(block->owner);  // its end may be the end of `owner`
  const std::lock_guard lock(owner->mutex_);
  owner->free_.push_back(std::move(block));
  // The oldest goes: the last batch of an epoch is smaller, and fits no other.
  if (owner->free_.size() > kMostFreeBlocks) {
    block = std::move(owner->free_.front());  // freed after the lock: `block` lives longer
    owner->free_.erase(owner->free_.begin());
  }
}

}  // namespace cohort::data
