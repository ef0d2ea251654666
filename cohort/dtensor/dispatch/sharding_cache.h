/// The sharding propagation cache: keeps plans for calls that repeat, as in training steps.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/dtensor/dispatch/product_in_pieces.h"
#include "cohort/dtensor/dispatch/rule.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// The key: everything on which plans and global shapes depend, as numbers. It has the rule and, for each argument, its value or,
/// for a tensor, sizes, dtype, memory layout and placements. Of a floating-point number it has only whether it is 0, unless the
/// rule reads numbers: optimizers pass other numbers in each step.
class CallKey {
 public:
  /// If an argument is of an unknown kind, is_complete() is false.
  CallKey(const Rule& rule, const Call& call);

  bool is_complete() const { return is_complete_; }
  size_t size() const { return numbers_.size(); }
  size_t hash() const { return hash_; }
  bool operator==(const CallKey& other) const { return hash_ == other.hash_ && numbers_ == other.numbers_; }

 private:
  void add(int64_t number) { numbers_.push_back(number); }
  void add(const c10::IValue& value, bool reads_numbers);
  void add(const at::Tensor& tensor);

  c10::SmallVector<int64_t, 64> numbers_;
  size_t hash_ = 0;
  bool is_complete_ = true;
};

/// The cached plan for calls with one key.
struct CachedSharding {
  Plan plan;
  std::vector<bool> stays;          ///< per operand: whether it already has the planned placements
  std::optional<RowGather> gather;  ///< the product's operand that is gathered, if nothing else is communicated
  bool may_share;  ///< whether results share no memory with operands, so that redistributed operands can be cached
  std::vector<int64_t> written;          ///< operands that the schema says are written; LibTorch counts only those
  std::vector<int64_t> written_results;  ///< per result: the operand that it is; -1 if it is a new tensor
  std::vector<Shape> shapes;             ///< global shapes of the results; empty until the operation has run once
  /// Layouts of the results; weak, because a mesh must be freed with its tensors.
  std::vector<std::weak_ptr<const Layout>> layouts;
};

/// Returns an entry of this thread's cache, or null. The cache has at most 4096 entries and 16 MiB of keys, and is
/// cleared when it is full.
std::shared_ptr<CachedSharding> find_cached_sharding(const CallKey& key);
void cache_sharding(CallKey key, std::shared_ptr<CachedSharding> call);
/// Clears the caches of all threads. Not while another thread uses DTensors.
void clear_sharding_caches();
/// Returns the number of entries in this thread's cache.
COHORT_TEST_API size_t sharding_cache_size();

}  // namespace cohort::dtensor
