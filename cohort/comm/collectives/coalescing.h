/// Coalescing: merges several collectives of one kind into one call of the engine (PyTorch's _coalescing_manager).
///
///     cohort::CoalescingManager together;
///     for (auto& tensor : tensors) cohort::all_reduce(tensor);
///     together.finish();
#pragma once

#include <memory>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort {

struct CoalescingOptions {
  Group group = {};
  /// If true, finish() returns a Work to wait for instead of waiting.
  bool async_ops = false;
};

/// As long as it lives, this thread's calls of all_reduce, all_gather_single and reduce_scatter_single on `group` are kept and
/// return null; finish() runs them together. Other operations run at once. Every rank must do the same.
class COHORT_API CoalescingManager {
 public:
  /// Throws c10::ValueError if this thread already coalesces on the group.
  explicit CoalescingManager(const CoalescingOptions& options = {});
  /// If finish() was not called, drops the kept calls and warns.
  ~CoalescingManager();
  CoalescingManager(const CoalescingManager&) = delete;
  CoalescingManager& operator=(const CoalescingManager&) = delete;

  /// Runs the kept calls. Returns: null if there are none. Throws c10::Error if kinds, reduce operations or devices are mixed.
  WorkPtr finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reduces many tensors with one all-reduce; in place.
COHORT_API WorkPtr all_reduce_coalesced(const TensorList& tensors, const ReduceOptions& options = {});

}  // namespace cohort
