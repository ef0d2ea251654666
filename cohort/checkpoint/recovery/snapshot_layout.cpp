#include "cohort/checkpoint/recovery/snapshot_layout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/machine/stream_copy.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/snapshot/version_file.h"

namespace cohort::checkpoint::detail {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kCopyBytes = size_t{1} << 20;

enum Kind : int64_t { kPlain = 0, kOwn = 1, kShared = 2 };

uint64_t aligned(uint64_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct CopyJob {
  const std::byte* from;
  std::byte* to;
  size_t num_bytes;
};

void add_jobs(std::vector<CopyJob>& jobs, const std::byte* from, std::byte* to, uint64_t num_bytes) {
  for (uint64_t at = 0; at < num_bytes; at += kCopyBytes) {
    jobs.push_back({from + at, to + at, std::min<uint64_t>(kCopyBytes, num_bytes - at)});
  }
}

// Returns dense host memory with the tensor's values, in the order of its elements; `keep` keeps it alive.
const std::byte* host_bytes(const at::Tensor& tensor, std::vector<at::Tensor>& keep) {
  keep.push_back(comm::as_plain(tensor.cpu()));
  return static_cast<const std::byte*>(keep.back().const_data_ptr());
}

struct Description {
  c10::List<std::string> keys;
  c10::List<int64_t> kinds;
  c10::List<int64_t> dtypes;
  c10::List<int64_t> dims;
  c10::List<int64_t> sizes;
  c10::impl::GenericList values = c10::impl::GenericList(c10::AnyType::get());
};

uint64_t place_of(SnapshotLayout& layout, const SnapshotPiece& piece) {
  uint64_t& end = piece.is_shared ? layout.shared_total : layout.num_own_bytes;
  const uint64_t offset = end;
  end += aligned(piece.num_bytes);
  return offset;
}

void add_tensor(SnapshotLayout& layout, Description& text, const std::string& key, const StateValue& value, bool shares,
                bool is_own) {
  const at::Tensor& tensor = value.tensor;
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_quantized(),
                    "[cohort] a memory snapshot cannot keep \"", key,
                    "\": it is not a dense tensor\n  hint: leave it out of what get() gives, or keep its dense parts");
  SnapshotPiece piece{.tensor = tensor.detach(), .num_bytes = tensor.nbytes()};
  const bool is_everywhere = !value.is_shard() && !is_own;
  piece.is_shared = shares && is_everywhere && piece.num_bytes >= kLeastSharedBytes;
  piece.offset = place_of(layout, piece);
  layout.is_full = layout.is_full && is_everywhere;
  text.kinds.push_back(piece.is_shared ? kShared : kOwn);
  text.dtypes.push_back(static_cast<int64_t>(tensor.scalar_type()));
  text.dims.push_back(tensor.dim());
  for (const int64_t size : tensor.sizes()) text.sizes.push_back(size);
  if (piece.is_shared) {
    const std::string line = c10::str(layout.shared_layout, key, tensor.scalar_type(), tensor.sizes());
    layout.shared_layout = snapshot::checksum_of(std::as_bytes(std::span(line)));
  }
  layout.pieces.push_back(std::move(piece));
}

at::Tensor tensor_on(const std::byte* bytes, const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  return at::from_blob(const_cast<std::byte*>(bytes), sizes, at::TensorOptions(dtype));
}

at::Tensor shared_tensor(const std::vector<SnapshotShare>& shares, uint64_t begin, uint64_t num_bytes,
                         const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  at::Tensor joined;
  uint64_t found = 0;
  for (const SnapshotShare& share : shares) {
    const uint64_t first = std::max(begin, share.begin);
    const uint64_t last = std::min(begin + num_bytes, share.begin + share.bytes.size());
    if (first >= last) continue;
    const std::byte* from = share.bytes.data() + (first - share.begin);
    if (last - first == num_bytes) return tensor_on(from, sizes, dtype);
    if (!joined.defined()) joined = at::empty(sizes, at::TensorOptions(dtype));
    std::memcpy(static_cast<std::byte*>(joined.mutable_data_ptr()) + (first - begin), from, last - first);
    found += last - first;
  }
  TORCH_CHECK(found == num_bytes, "[cohort] resume: a snapshot's bytes are not all there");
  return joined;
}

uint64_t num_bytes_of(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes),
                "[cohort] resume: a snapshot's description has impossible sizes");
  }
  return bytes;
}

}  // namespace

SnapshotLayout plan_snapshot(const ShardedStateDict& state, bool shares,
                             const std::function<bool(const std::string& key)>& is_own) {
  SnapshotLayout layout;
  Description text;
  for (const auto& item : state) {
    text.keys.push_back(item.key());
    if (item.value().is_tensor()) {
      add_tensor(layout, text, item.key(), item.value(), shares, is_own && is_own(item.key()));
    } else {
      text.kinds.push_back(kPlain);
      text.values.push_back(item.value().value);
    }
  }
  layout.meta = comm::pickle(c10::ivalue::Tuple::create(
      {text.keys, text.kinds, text.dtypes, text.dims, text.sizes, c10::IValue(text.values)}));
  return layout;
}

void copy_snapshot(const SnapshotLayout& layout, const SnapshotSlot& slot, SnapshotPieces which, bool with_threads) {
  const at::NoGradGuard no_grad;
  std::vector<CopyJob> jobs;
  std::vector<at::Tensor> keep;
  for (const SnapshotPiece& piece : layout.pieces) {
    const bool is_small = piece.num_bytes < kLeastSharedBytes;
    if (which != SnapshotPieces::kAll && is_small != (which == SnapshotPieces::kSmall)) continue;
    const uint64_t begin = piece.is_shared ? std::max(piece.offset, slot.shared_begin) : piece.offset;
    const uint64_t slot_end = piece.is_shared ? slot.shared_begin + slot.shared.size() : slot.own.size();
    const uint64_t end = std::min(piece.offset + piece.num_bytes, slot_end);
    if (begin >= end) continue;
    std::byte* to = piece.is_shared ? slot.shared.data() + (begin - slot.shared_begin) : slot.own.data() + begin;
    add_jobs(jobs, host_bytes(piece.tensor, keep) + (begin - piece.offset), to, end - begin);
  }
  const auto copy = [&jobs](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const CopyJob& job = jobs[static_cast<size_t>(i)];
      base::stream_copy(job.to, job.from, job.num_bytes);
    }
  };
  const auto count = static_cast<int64_t>(jobs.size());
  if (with_threads) {
    at::parallel_for(0, count, 1, copy);
  } else {
    copy(0, count);
  }
}

ShardedStateDict read_snapshot(const std::string& meta, std::span<const std::byte> own,
                               const std::vector<SnapshotShare>& shares) {
  const auto fields = comm::unpickle(meta).toTuple()->elements();
  TORCH_CHECK(fields.size() == 6, "[cohort] resume: a snapshot's description is not understood");
  const auto numbers = [&fields](size_t i) { return fields[i].toListRef(); };
  ShardedStateDict state;
  SnapshotLayout layout;
  size_t tensor = 0;
  size_t size = 0;
  size_t plain = 0;
  for (size_t i = 0; i < numbers(0).size(); ++i) {
    const std::string key = numbers(0)[i].toStringRef();
    const int64_t kind = numbers(1)[i].toInt();
    if (kind == kPlain) {
      state.insert(key, StateValue(c10::IValue(numbers(5)[plain++])));
      continue;
    }
    const auto dtype = static_cast<at::ScalarType>(numbers(2)[tensor].toInt());
    std::vector<int64_t> sizes;
    for (int64_t dim = 0; dim < numbers(3)[tensor].toInt(); ++dim) sizes.push_back(numbers(4)[size++].toInt());
    ++tensor;
    SnapshotPiece piece{.is_shared = kind == kShared, .num_bytes = num_bytes_of(sizes, dtype)};
    piece.offset = place_of(layout, piece);
    if (piece.is_shared) {
      state.insert(key, StateValue(shared_tensor(shares, piece.offset, piece.num_bytes, sizes, dtype)));
      continue;
    }
    TORCH_CHECK(piece.offset + piece.num_bytes <= own.size(), "[cohort] resume: a snapshot's bytes are not all there");
    state.insert(key, StateValue(tensor_on(own.data() + piece.offset, sizes, dtype)));
  }
  return state;
}

}  // namespace cohort::checkpoint::detail
