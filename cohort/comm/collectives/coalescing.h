/// Coalescing: several collectives of one kind as one call of the engine (PyTorch's _coalescing_manager).
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
  /// finish() returns a Work to wait for instead of waiting.
  bool async_ops = false;
};

/// While it lives, all_reduce, all_gather_single and reduce_scatter_single of this thread on `group` are kept, return null,
/// and run together in finish(). Other operations run at once. Every rank must do the same.
class COHORT_API CoalescingManager {
 public:
  /// Throws c10::ValueError when this thread already coalesces on the group.
  explicit CoalescingManager(const CoalescingOptions& options = {});
  /// Drops what was kept if finish() was not called, and warns.
  ~CoalescingManager();
  CoalescingManager(const CoalescingManager&) = delete;
  CoalescingManager& operator=(const CoalescingManager&) = delete;

  /// Runs what was kept. Returns: null if nothing was. Throws c10::Error when kinds, reduce operations or devices are mixed.
  WorkPtr finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All-reduce of many tensors at once; in place.
COHORT_API WorkPtr all_reduce_coalesced(const TensorList& tensors, const ReduceOptions& options = {});

}  // namespace cohort
