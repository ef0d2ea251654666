/// The layout of a state dict as bytes in memory: the place of each tensor. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/export.h"

namespace cohort::checkpoint::detail {

/// Full tensors of this size and more are kept once per host.
constexpr uint64_t kLeastSharedBytes = uint64_t{64} << 10;

struct SnapshotPiece {
  at::Tensor tensor;
  /// Whether all ranks have the same tensor.
  bool is_shared = false;
  /// The offset among the shared bytes, or among this rank's own.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

struct SnapshotLayout {
  std::vector<SnapshotPiece> pieces;
  /// A pickle with everything that is needed to read the bytes again, including plain values.
  std::string meta;
  uint64_t num_own_bytes = 0;
  uint64_t shared_total = 0;
  /// A hash of names, dtypes and shapes of shared tensors.
  uint64_t shared_layout = 0;
  /// Whether nothing is a shard or this rank's own.
  bool is_full = true;
};

/// `shares`: large full tensors are shared, except this rank's own. Throws c10::ValueError, naming the key, for
/// tensors that are not dense, and plain values that cannot be pickled.
COHORT_TEST_API SnapshotLayout plan_snapshot(const ShardedStateDict& state, bool shares,
                                             const std::function<bool(const std::string& key)>& is_own = nullptr);

/// Memory for the bytes. `shared` begins at `shared_begin` of all shared bytes.
struct SnapshotSlot {
  std::span<std::byte> own;
  std::span<std::byte> shared;
  uint64_t shared_begin = 0;
};
/// The tensors to copy. Small ones, below kLeastSharedBytes, may change in a forward pass, such as BatchNorm's statistics.
enum class SnapshotPieces { kAll, kSmall, kLarge };
/// `with_threads`: uses LibTorch's threads, if the calling thread has any.
COHORT_TEST_API void copy_snapshot(const SnapshotLayout& layout, const SnapshotSlot& slot, SnapshotPieces which,
                                   bool with_threads);

/// The bytes of one rank's share of all shared bytes, from `begin` on.
struct SnapshotShare {
  uint64_t begin = 0;
  std::span<const std::byte> bytes;
};
/// Returns tensors that are views of the bytes, except tensors that are spread over several shares. Throws c10::Error if the
/// description does not fit the bytes.
COHORT_TEST_API ShardedStateDict read_snapshot(const std::string& meta, std::span<const std::byte> own,
                                               const std::vector<SnapshotShare>& shares);

}  // namespace cohort::checkpoint::detail
