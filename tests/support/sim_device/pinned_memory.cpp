#include "tests/support/sim_device/pinned_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace cohort::sim {
namespace {

struct PinnedBlock {
  char* pointer;
  size_t size;
  std::vector<Mark> uses;
};

struct PinnedMemory {
  std::mutex mutex;
  std::map<const char*, PinnedBlock> blocks;  // by their addresses
  std::vector<PinnedBlock> pending;           // freed, still used by copies
};

PinnedMemory& pinned_memory() {
  static auto* const one = new PinnedMemory;
  return *one;
}

// The caller holds the lock. Null for other memory.
PinnedBlock* find_block(const void* pointer) {
  auto& blocks = pinned_memory().blocks;
  const auto* const address = static_cast<const char*>(pointer);
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return nullptr;
  auto& block = (--next)->second;
  return address < block.pointer + block.size ? &block : nullptr;
}

void free_unused_blocks() {
  std::erase_if(pinned_memory().pending, [](const PinnedBlock& block) {
    const bool is_unused = std::all_of(block.uses.begin(), block.uses.end(),
                                       [](const Mark& mark) { return mark.queue->is_done(mark.number); });
    if (!is_unused) return false;
    std::memset(block.pointer, 0xFF, block.size);
    std::free(block.pointer);
    return true;
  });
}

void give_block_back(void* pointer) {
  auto& all = pinned_memory();
  const std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(static_cast<char*>(pointer));
  all.pending.push_back(std::move(found->second));
  all.blocks.erase(found);
  free_unused_blocks();
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = std::max<size_t>(bytes, 1);
    auto* const pointer = static_cast<char*>(std::malloc(size));
    TORCH_CHECK(pointer, "[cohort] no memory for ", size, " pinned bytes");
    const std::lock_guard lock(pinned_memory().mutex);
    free_unused_blocks();
    pinned_memory().blocks[pointer] = {pointer, size, {}};
    return {pointer, pointer, &give_block_back, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_block_back; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
};

}  // namespace

c10::Allocator* pinned_allocator() {
  static auto* const one = new PinnedAllocator;
  return one;
}

bool is_pinned(const void* pointer) {
  const std::lock_guard lock(pinned_memory().mutex);
  return find_block(pointer) != nullptr;
}

void record_pinned_use(const void* pointer, Mark mark) {
  const std::lock_guard lock(pinned_memory().mutex);
  auto* const block = find_block(pointer);
  TORCH_CHECK(block, "not pinned memory");
  block->uses.push_back(mark);
}

}  // namespace cohort::sim
