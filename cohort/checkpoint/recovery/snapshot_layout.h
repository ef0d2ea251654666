/// From a state dict to bytes in memory and back: which tensor lies where. Private to this folder.
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

/// From here on whole tensors are kept once per host.
constexpr uint64_t kLeastSharedBytes = uint64_t{64} << 10;

struct SnapshotPiece {
  at::Tensor tensor;
  /// It is one of those that all ranks have alike.
  bool is_shared = false;
  /// Among the bytes of its kind.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

struct SnapshotLayout {
  std::vector<SnapshotPiece> pieces;
  /// All that is needed to read the bytes again, plain values included: a pickle.
  std::string meta;
  uint64_t num_own_bytes = 0;
  uint64_t shared_total = 0;
  /// Of names, dtypes and shapes of what is shared.
  uint64_t shared_layout = 0;
  /// Nothing in it is a part, or this rank's own.
  bool is_whole = true;
};

/// `shares`: large whole tensors are shared, but for those that are this rank's own. Throws c10::ValueError, naming the key, for
/// tensors that are not dense, and plain values that cannot be pickled.
COHORT_TEST_API SnapshotLayout plan_snapshot(const ShardedStateDict& state, bool shares,
                                             const std::function<bool(const std::string& key)>& is_own = nullptr);

/// Where the bytes go: `shared` begins at `shared_begin` of all shared bytes.
struct SnapshotRoom {
  std::span<std::byte> own;
  std::span<std::byte> shared;
  uint64_t shared_begin = 0;
};
/// Small ones, below kLeastSharedBytes, may change in a forward pass, such as BatchNorm's statistics.
enum class SnapshotPieces { kAll, kSmall, kLarge };
/// `with_threads`: LibTorch's threads help, as far as the calling thread has any.
COHORT_TEST_API void copy_snapshot(const SnapshotLayout& layout, const SnapshotRoom& room, SnapshotPieces which,
                                   bool with_threads);

/// The bytes of a share, beginning at `begin` of all.
struct SnapshotShare {
  uint64_t begin = 0;
  std::span<const std::byte> bytes;
};
/// The tensors lie in the bytes, but for those that are in several shares. Throws c10::Error for a description that does not fit
/// the bytes.
COHORT_TEST_API ShardedStateDict read_snapshot(const std::string& meta, std::span<const std::byte> own,
                                               const std::vector<SnapshotShare>& shares);

}  // namespace cohort::checkpoint::detail
