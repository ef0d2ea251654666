#include "cohort/checkpoint/sharded/snapshot.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "cohort/base/machine/stream_copy.h"
#include "cohort/base/text/text.h"
#include "cohort/checkpoint/sharded/save_items.h"

namespace cohort::checkpoint::detail {
namespace {

constexpr size_t kSnapshotAlignment = 64;
constexpr int64_t kBytesPerThread = int64_t{1} << 20;

size_t room_of(const StateValue& value) {
  return value.is_tensor() ? (value.tensor.nbytes() + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment
                           : 0;
}

void copy_elements(const at::Tensor& from, const at::Tensor& to) {
  if (!is_plain(from, from.scalar_type())) {
    to.copy_(from);
    return;
  }
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  auto* target = static_cast<std::byte*>(to.mutable_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(from.nbytes()), kBytesPerThread, [&](int64_t begin, int64_t end) {
    base::stream_copy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

Snapshot::~Snapshot() {
  if (memory_) munmap(memory_, capacity_);
}

void Snapshot::reserve(size_t num_bytes) {
  if (num_bytes <= capacity_) return;
  if (memory_) munmap(memory_, capacity_);
  memory_ = nullptr;
  capacity_ = 0;
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "[cohort] no memory for a copy of ", base::format_bytes(num_bytes), ": ",
              base::errno_text(errno), "\n  hint: use save_sharded(), which needs no copy");
  // With larger pages the first copy waits less for the kernel. Not every kernel has them.
  madvise(memory, num_bytes, MADV_HUGEPAGE);
  memory_ = static_cast<char*>(memory);
  capacity_ = num_bytes;
}

void Snapshot::take(const ShardedStateDict& state) {
  copy_.clear();
  size_t num_bytes = 0;
  for (const auto& item : state) num_bytes += room_of(item.value());
  reserve(num_bytes);
  char* place = memory_;
  for (const auto& item : state) {
    StateValue value;
    if (item.value().is_tensor()) {
      const auto from = item.value().tensor.detach();
      value.tensor = from.numel() > 0
                         ? at::from_blob(place, from.sizes(), at::TensorOptions().dtype(from.scalar_type()))
                         : at::empty(from.sizes(), at::TensorOptions().dtype(from.scalar_type()));
      copy_elements(from, value.tensor);
      value.spec = item.value().spec;
      place += room_of(item.value());
    } else {
      value.value = item.value().value.deepcopy();
    }
    copy_.insert(item.key(), std::move(value));
  }
}

}  // namespace cohort::checkpoint::detail
