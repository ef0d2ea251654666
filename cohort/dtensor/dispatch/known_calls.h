/// What a rule has said of a call, for calls that are like it: a training step repeats the same ones.
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

/// What plans and whole shapes depend on, as numbers: the rule, and of each argument its value, or, of a tensor, the sizes, the
/// dtype, how it lies in memory and how on the mesh. Of floating-point numbers only whether they are 0, unless the rule reads
/// them: optimizers have other ones in each step.
class CallKey {
 public:
  /// Of a call whose arguments are all of known kinds; else is_complete() is false.
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

/// Of one kind of call.
struct KnownCall {
  Plan plan;
  std::vector<bool> stays;          ///< operand by operand: it lies as planned
  std::optional<RowGather> gather;  ///< of the only operand that has to travel, which is multiplied
  bool may_share;                ///< no result shares memory with an operand, so that moved operands may be remembered
  std::vector<int64_t> written;  ///< operands, by the schema: LibTorch counts no others
  std::vector<int64_t> written_results;  ///< result by result: the operand that it is, -1: none
  std::vector<Shape> shapes;             ///< of the whole results; empty until the operation has run for the first time
  /// Of the results; weak, as a mesh must go when its tensors have gone.
  std::vector<std::weak_ptr<const Layout>> layouts;
};

/// This thread's; undefined if there is none. At most 4096 and 16 MiB of keys: then all are forgotten.
std::shared_ptr<KnownCall> find_known_call(const CallKey& key);
void know_call(CallKey key, std::shared_ptr<KnownCall> call);
/// Forgets those of all threads. Not while another thread uses DTensors.
void forget_known_calls();
/// How many this thread has.
COHORT_TEST_API size_t num_known_calls();

}  // namespace cohort::dtensor
