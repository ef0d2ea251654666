#include "cohort/comm/process/shared_storage.h"

#include <ATen/MapAllocator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cohort/comm/error/throw_error.h"

namespace cohort::comm {
namespace {

using base::Result;

// Alignment of each storage in a block, equal to that of LibTorch's allocator.
constexpr size_t kAlignment = 64;

// The blocks of this process, by memory address.
struct Blocks {
  std::mutex mutex;
  std::map<const shm::SharedMemory*, std::weak_ptr<SharedBlock>> by_memory;
};

// Leaked on purpose: storages may be released while the process exits.
Blocks& blocks() {
  static auto* const all = new Blocks;
  return *all;
}

bool has_memory(const c10::Storage& storage) {
  return storage.nbytes() == 0 || storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

}  // namespace

// Keeps a storage's bytes alive.
struct SharedBlock::Owner {
  std::shared_ptr<SharedBlock> block;
  Place place;
};

SharedBlock::SharedBlock(shm::SharedMemoryPtr memory, base::Fd fd) : memory_(std::move(memory)), fd_(std::move(fd)) {}

SharedBlock::~SharedBlock() {
  auto& all = blocks();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_memory.find(memory_.get());
  if (found != all.by_memory.end() && found->second.expired()) all.by_memory.erase(found);
}

Result<std::shared_ptr<SharedBlock>> SharedBlock::create(size_t num_bytes) {
  base::Fd fd;
  // Held until open() has found the same mapping.
  const auto memory = shm::SharedMemory::create(num_bytes, &fd);
  if (!memory) return memory.error();
  return open(std::move(fd), (*memory)->size());
}

Result<std::shared_ptr<SharedBlock>> SharedBlock::open(base::Fd fd, size_t num_bytes) {
  auto memory = shm::SharedMemory::open(fd, num_bytes);
  if (!memory) return memory.error();
  auto& all = blocks();
  const std::lock_guard lock(all.mutex);
  auto& entry = all.by_memory[memory->get()];
  if (auto known = entry.lock()) return known;
  std::shared_ptr<SharedBlock> block(new SharedBlock(std::move(*memory), std::move(fd)));
  entry = block;
  return block;
}

void SharedBlock::release(void* context) {
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(context));
  auto& block = *owner->block;
  const std::lock_guard lock(block.mutex_);
  const auto found = block.storages_.find(owner->place);
  if (found != block.storages_.end() && found->second.expired()) block.storages_.erase(found);
}

c10::DataPtr SharedBlock::make_data_ptr(const Place& place) {
  return {data() + place.first, new Owner{shared_from_this(), place}, &SharedBlock::release, c10::Device(c10::kCPU)};
}

c10::Storage SharedBlock::storage_at(size_t offset, size_t num_bytes) {
  const Place place(offset, num_bytes);
  // Made outside of the lock: if it is not used, its destructor takes the lock.
  auto fresh = make_data_ptr(place);
  c10::intrusive_ptr<c10::StorageImpl> known;
  const std::lock_guard lock(mutex_);
  const auto found = storages_.find(place);
  if (found != storages_.end()) {
    known = found->second.lock();
    // A storage that has got other memory since then is not in this block any more.
    if (known && known->data() == data() + offset) return {std::move(known)};
    storages_.erase(found);
  }
  const c10::Storage storage(c10::Storage::use_byte_size_t(), num_bytes, std::move(fresh), /*allocator=*/nullptr,
                             /*resizable=*/false);
  storages_.emplace(place, storage.getWeakStorageImpl());
  return storage;
}

void SharedBlock::take_over(const c10::Storage& storage, size_t offset) {
  auto* const impl = storage.unsafeGetStorageImpl();
  const Place place(offset, impl->nbytes());
  // memcpy, because at::copy_ may start threads, which spawn would refuse. mutable_data() first turns a lazy copy into a real
  // one.
  std::memcpy(data() + offset, impl->mutable_data(), place.second);
  impl->set_data_ptr_noswap(make_data_ptr(place));
  impl->set_resizable(false);
  impl->set_allocator(nullptr);
  const std::lock_guard lock(mutex_);
  storages_.insert_or_assign(place, storage.getWeakStorageImpl());
}

SharedStorage find_shared(const c10::Storage& storage) {
  const auto& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  const auto* const owner = data.cast_context<SharedBlock::Owner>(&SharedBlock::release);
  if (!owner) return {};
  return {owner->block, owner->place.first};
}

bool is_libtorch_shared(const c10::Storage& storage) {
  const auto& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return at::MapAllocator::fromDataPtr(data) || at::RefcountedMapAllocator::fromDataPtr(data);
}

void move_to_shared_memory(const std::vector<c10::Storage>& storages) {
  // By address, because tied parameters and views have one storage.
  std::map<const c10::StorageImpl*, size_t> offsets;
  std::vector<c10::Storage> to_move;
  size_t num_bytes = 0;
  for (const auto& storage : storages) {
    if (storage.nbytes() == 0 || find_shared(storage).block || is_libtorch_shared(storage)) continue;
    if (!offsets.emplace(storage.unsafeGetStorageImpl(), num_bytes).second) continue;
    to_move.push_back(storage);
    num_bytes += (storage.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (to_move.empty()) return;
  const auto block =
      or_throw(SharedBlock::create(num_bytes), c10::str("share_memory cannot make room for ", num_bytes, " bytes"));
  for (const auto& storage : to_move) block->take_over(storage, offsets.at(storage.unsafeGetStorageImpl()));
}

void check_shareable(const std::string& who, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "[cohort] ", who, " is undefined");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "[cohort] ", who, " is on device ", tensor.device(),
                    ", and only CPU tensors can be in shared memory\n  hint: share tensor.cpu()");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "[cohort] ", who, " has layout ", tensor.layout(),
                    ", and only dense tensors can be in shared memory\n"
                    "  hint: share its indices and values, or tensor.to_dense()");
  TORCH_CHECK_VALUE(!tensor.is_nested(), "[cohort] ", who,
                    " is nested, and only plain tensors can be in shared memory\n",
                    "  hint: share its parts, from tensor.unbind()");
  TORCH_CHECK_VALUE(!tensor.is_quantized(), "[cohort] ", who, " is quantized (", tensor.dtype(),
                    "), and only plain dtypes can be in shared memory\n"
                    "  hint: share tensor.int_repr() and its scale");
  TORCH_CHECK_VALUE(tensor.has_storage() && has_memory(tensor.storage()), "[cohort] ", who,
                    " has no memory of its own (it may be a wrapped or fake tensor)\n"
                    "  hint: share the tensor that it stands for");
}

}  // namespace cohort::comm
