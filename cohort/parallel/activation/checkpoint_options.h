/// Options of checkpointing, and the error if a recomputation differs.
#pragma once

#include <c10/util/Exception.h>

#include "cohort/export.h"

namespace cohort {

/// The comparison between the tensors that autograd saved in forward and in the recomputation.
enum class DeterminismCheck {
  kDefault,  ///< sizes, dtype and device of each
  kNone,     ///< only their number
};

struct CheckpointOptions {
  /// Uses the older variant: forward runs without gradients, and backward runs a backward pass of its own. It needs an input that
  /// requires a gradient, and backward over all leaves; it ignores determinism_check and early_stop, and throws for debug.
  bool use_reentrant = false;
  /// Repeats the same random numbers: from the default generators of the CPU and of the devices of the inputs.
  bool preserve_rng_state = true;
  DeterminismCheck determinism_check = DeterminismCheck::kDefault;
  /// Ends the recomputation as soon as all tensors that backward may need are there.
  bool early_stop = true;
  /// Lists in errors the operators that ran in forward and in the recomputation. Slow.
  bool debug = false;
};

/// While it lives, replaces the option early_stop for all checkpoints whose forward runs in this thread.
class COHORT_API CheckpointEarlyStop {
 public:
  explicit CheckpointEarlyStop(bool is_enabled);
  CheckpointEarlyStop(const CheckpointEarlyStop&) = delete;
  CheckpointEarlyStop& operator=(const CheckpointEarlyStop&) = delete;
  ~CheckpointEarlyStop();

 private:
  int previous_;
};

/// Thrown if the recomputation saved other tensors than forward, or backward asked twice for the same one.
class COHORT_API CheckpointError : public c10::Error {
  using Error::Error;
};

}  // namespace cohort
