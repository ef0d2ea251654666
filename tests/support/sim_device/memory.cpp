#include "tests/support/sim_device/memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

constexpr size_t kBytesPerDevice = size_t{8} << 30;  // of addresses
constexpr size_t kBytes = kMaxDevices * kBytesPerDevice;
constexpr size_t kLeastBlock = 512;

struct Block {
  char* pointer;
  size_t size;
  Queue* home;  // where it was allocated
  std::set<Queue*> users = {};
  std::vector<Mark> pending = {};  // of a freed block: what still uses it
};

struct Memory {
  std::mutex mutex;
  char* guarded = nullptr;
  char* contents = nullptr;
  std::array<size_t, kMaxDevices> used{};
  std::map<std::pair<Queue*, size_t>, std::vector<Block*>> free;
  std::vector<Block*> pending;
};

Memory& memory() {
  static auto* const one = new Memory;
  return *one;
}

// The caller holds the lock, here and below.
void reuse(Block* block) {
  block->home->push([block] { std::memset(contents_of(block->pointer), 0xFF, block->size); });
  memory().free[{block->home, block->size}].push_back(block);
}

void reuse_blocks_without_users() {
  std::erase_if(memory().pending, [](Block* block) {
    std::erase_if(block->pending, [](const Mark& mark) { return mark.queue->is_done(mark.number); });
    if (!block->pending.empty()) return false;
    reuse(block);
    return true;
  });
}

Block* add_block(Queue& queue, size_t size) {
  auto& all = memory();
  const auto device = static_cast<size_t>(queue.stream().device_index());
  TORCH_CHECK(all.used[device] + size <= kBytesPerDevice, queue.stream().device(), " is out of memory");
  auto* const pointer = all.guarded + device * kBytesPerDevice + all.used[device];
  all.used[device] += size;
  std::memset(contents_of(pointer), 0xFF, size);
  return new Block{pointer, size, &queue};
}

void free_block(void* context) {
  auto* const block = static_cast<Block*>(context);
  if (!block) return;
  const std::lock_guard lock(memory().mutex);
  for (auto* queue : std::exchange(block->users, {})) block->pending.push_back(end_of(*queue));
  if (block->pending.empty()) {
    reuse(block);
  } else {
    memory().pending.push_back(block);
  }
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device where = device(current_device());
    if (bytes == 0) return {nullptr, nullptr, &free_block, where};
    auto& queue = current_queue(where.index());
    const size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
    const std::lock_guard lock(memory().mutex);
    reuse_blocks_without_users();
    auto& free = memory().free[{&queue, size}];
    if (free.empty()) free.push_back(add_block(queue, size));
    auto* const block = free.back();
    free.pop_back();
    return {block->pointer, block, &free_block, where};
  }

  // Null: a block is known by its context, which raw pointers do not have.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    current_queue(current_device()).push([=] { std::memcpy(contents_of(destination), contents_of(source), bytes); });
  }
};

char* map_addresses(int protection) {
  void* const address = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "cannot reserve addresses for the simulated devices' memory");
  return static_cast<char*>(address);
}

size_t offset_of(const void* pointer) {
  const auto* const address = static_cast<const char*>(pointer);
  const auto* const begin = memory().guarded;
  TORCH_CHECK(begin && address >= begin && address < begin + kBytes, "not the memory of a simulated device");
  return static_cast<size_t>(address - begin);
}

}  // namespace

void reserve_memory() {
  memory().guarded = map_addresses(PROT_NONE);
  memory().contents = map_addresses(PROT_READ | PROT_WRITE);
}

c10::Allocator* device_allocator() {
  static auto* const one = new DeviceAllocator;
  return one;
}

c10::DeviceIndex device_of(const void* pointer) {
  return static_cast<c10::DeviceIndex>(offset_of(pointer) / kBytesPerDevice);
}

void* contents_of(const void* pointer) { return pointer ? memory().contents + offset_of(pointer) : nullptr; }

void record_use(const c10::DataPtr& data, Queue& queue) {
  if (data.device().type() != type()) return;
  auto* const block = static_cast<Block*>(data.get_context());
  if (!block || block->home == &queue) return;
  const std::lock_guard lock(memory().mutex);
  block->users.insert(&queue);
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  auto data = device_allocator()->allocate(bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) device_allocator()->copy_data(data.get(), storage.data(), kept);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

at::Tensor host_view(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "the simulated devices have strided tensors only");
  auto* const data = tensor.numel() > 0 ? contents_of(tensor.unsafeGetTensorImpl()->mutable_data()) : nullptr;
  return at::for_blob(data, tensor.sizes())
      .strides(tensor.strides())
      .options(at::dtype(tensor.scalar_type()))
      .make_tensor();
}

}  // namespace cohort::sim
