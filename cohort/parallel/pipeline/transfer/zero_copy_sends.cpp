#include "cohort/parallel/pipeline/transfer/zero_copy_sends.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::pipeline {

/// 1: returned. The receiver writes 1 after its last read; the sender writes 0 before it uses the word again.
struct ZeroCopySends::Word {
  std::atomic<uint64_t> is_returned;
};

namespace {

// With more ranks a table of all pairs is not worth it.
constexpr int kMostRanks = 64;

bool is_returned(const ZeroCopySends::Send& send) {
  // Acquire: the receiver's last reads and writes come before the next use of the memory.
  return send.word->is_returned.load(std::memory_order_acquire) != 0;
}

// Whether nobody else holds the tensor or its memory, so that nobody here sees changes by a receiver. Memory that a storage has
// from elsewhere than the allocator (from_blob) may also be somebody else's.
bool is_exclusive(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.storage().data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter() && comm::is_plain(tensor);
}

// The tensors that receivers had when ZeroCopySends was destroyed.
struct UnfinishedSends {
  shm::SharedMemoryPtr memory;
  std::vector<ZeroCopySends::Send> sends;
  pid_t owner = ::getpid();
};

// Takes these in, and releases returned ones. Never destroyed: others may read them while this process exits.
void keep_until_returned(UnfinishedSends left) {
  static std::mutex mutex;
  static auto& all = *new std::vector<UnfinishedSends>;
  std::vector<ZeroCopySends::Send> returned;  // destroyed without the lock
  const std::lock_guard lock(mutex);
  if (!left.sends.empty()) all.push_back(std::move(left));
  for (UnfinishedSends& each : all) {
    if (each.owner != ::getpid()) continue;  // of the process that this one was forked from, and not readable here
    const auto first = std::partition(each.sends.begin(), each.sends.end(),
                                      [](const ZeroCopySends::Send& send) { return !is_returned(send); });
    std::move(first, each.sends.end(), std::back_inserter(returned));
    each.sends.erase(first, each.sends.end());
  }
  std::erase_if(all, [](const UnfinishedSends& each) { return each.sends.empty(); });
}

size_t bytes_of_words(int group_size) {
  const auto num_pairs = static_cast<size_t>(group_size) * static_cast<size_t>(group_size);
  return shm::whole_pages(num_pairs * ZeroCopySends::kNumSlots * sizeof(ZeroCopySends::Word));
}

}  // namespace

at::Tensor TensorLocation::tensor() const {
  at::Tensor location = at::empty({kLength}, at::kLong);
  auto* const values = location.mutable_data_ptr<int64_t>();
  values[0] = static_cast<int64_t>(area);
  values[1] = offset;
  values[2] = slot;
  return location;
}

TensorLocation TensorLocation::read(const at::Tensor& tensor) {
  const auto* const values = tensor.const_data_ptr<int64_t>();
  return {static_cast<Area>(values[0]), values[1], values[2]};
}

bool ZeroCopySends::are_possible(const Group& group, int group_size) {
  return group_size > 1 && group_size <= kMostRanks && comm::has_shared_memory(group);
}

ZeroCopySends::ZeroCopySends(const Group& group, size_t part_bytes)
    : rank_(group ? group->getRank() : get_rank()),
      group_size_(group ? group->getSize() : get_world_size()),
      part_bytes_(shm::whole_pages(part_bytes)),
      arenas_(comm::arenas_of(group)),
      free_slots_(static_cast<size_t>(group_size_)) {
  const size_t num_bytes = bytes_of_words(group_size_) + part_bytes_ * static_cast<size_t>(group_size_);
  memory_ = comm::make_common_memory(num_bytes, /*has_pages=*/false, group).writable;
  if (part_bytes_ > 0) free_.add({0, part_bytes_});
  for (auto& slots : free_slots_) {
    for (int slot = kNumSlots - 1; slot >= 0; --slot) slots.push_back(slot);
  }
}

ZeroCopySends::~ZeroCopySends() {
  if (::getpid() != owner_) return;  // a forked child does not have the memory
  take_back();
  // Receivers keep the common memory themselves.
  std::erase_if(pending_, [](const Send& send) { return !send.tensor.defined(); });
  keep_until_returned({memory_, std::move(pending_)});
}

ZeroCopySends::Word* ZeroCopySends::word(int sender, int receiver, int slot) const {
  const auto pair = static_cast<size_t>(sender) * static_cast<size_t>(group_size_) + static_cast<size_t>(receiver);
  return reinterpret_cast<Word*>(memory_->data()) + pair * kNumSlots + static_cast<size_t>(slot);
}

std::byte* ZeroCopySends::part(int rank) const {
  return memory_->data() + bytes_of_words(group_size_) + part_bytes_ * static_cast<size_t>(rank);
}

TensorLocation ZeroCopySends::send(const at::Tensor& tensor, int receiver) {
  take_back();
  auto& slots = free_slots_[static_cast<size_t>(receiver)];
  if (slots.empty()) return {};
  Send send{word(rank_, receiver, slots.back()), receiver, slots.back(), {}, {}};
  TensorLocation location{TensorLocation::Area::kNone, 0, send.slot};
  const auto* const data = is_exclusive(tensor) ? static_cast<const std::byte*>(tensor.const_data_ptr()) : nullptr;
  const shm::SharedMemory* const arena = arenas_.empty() ? nullptr : arenas_[static_cast<size_t>(rank_)].get();
  if (data && arena && data >= arena->data() && data < arena->data() + arena->size()) {
    location.area = TensorLocation::Area::kArena;
    location.offset = data - arena->data();
    send.tensor = tensor.detach();
  } else if (const auto offset = free_.take(part_bytes_of(tensor.nbytes()))) {
    location.area = TensorLocation::Area::kCommon;
    location.offset = static_cast<int64_t>(*offset);
    send.block = {*offset, part_bytes_of(tensor.nbytes())};
    const at::NoGradGuard no_grad;
    at::from_blob(part(rank_) + *offset, tensor.sizes(), tensor.options().requires_grad(false)).copy_(tensor);
  } else {
    return {};
  }
  slots.pop_back();
  pending_.push_back(std::move(send));
  return location;
}

at::Tensor ZeroCopySends::receive(const TensorLocation& location, const TensorMeta& meta, int sender) const {
  const bool is_in_arena = location.area == TensorLocation::Area::kArena && !arenas_.empty();
  const auto& memory = is_in_arena ? arenas_[static_cast<size_t>(sender)] : memory_;
  const size_t most = is_in_arena ? memory->size() : part_bytes_, num_bytes = bytes_of(meta);
  const auto offset = static_cast<size_t>(location.offset);
  if ((!is_in_arena && location.area != TensorLocation::Area::kCommon) || num_bytes > most ||
      offset > most - num_bytes || location.slot < 0 || location.slot >= kNumSlots) {
    C10_THROW_ERROR(
        DistBackendError,
        fmt::format("[cohort] pipeline: rank {} of the group sends a tensor outside its own memory: {} bytes "
                    "from {} on in area {}, slot {}",
                    sender, num_bytes, location.offset, static_cast<int64_t>(location.area), location.slot));
  }
  auto* const data = (is_in_arena ? memory->data() : part(sender)) + offset;
  // A forked child does not have the memory, and its parent still uses the tensor.
  auto give_back = [memory, words = memory_, word = word(sender, rank_, static_cast<int>(location.slot)),
                    owner = ::getpid()](void*) {
    if (::getpid() == owner) word->is_returned.store(1, std::memory_order_release);
  };
  return at::from_blob(data, meta.sizes, std::move(give_back), at::TensorOptions(meta.dtype));
}

void ZeroCopySends::take_back() {
  const auto first =
      std::partition(pending_.begin(), pending_.end(), [](const Send& send) { return !is_returned(send); });
  for (auto send = first; send != pending_.end(); ++send) {
    send->word->is_returned.store(0, std::memory_order_relaxed);
    free_slots_[static_cast<size_t>(send->receiver)].push_back(send->slot);
    if (send->block.bytes > 0) free_.add(send->block);
  }
  pending_.erase(first, pending_.end());
}

}  // namespace cohort::pipeline
