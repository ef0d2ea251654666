/// How a function is checkpointed, and what goes wrong when its repetition differs.
#pragma once

#include <c10/util/Exception.h>

#include "cohort/export.h"

namespace cohort {

/// What is compared between the tensors that autograd saved in forward and those of the repetition.
enum class DeterminismCheck {
  kDefault,  ///< sizes, dtype and device of each
  kNone,     ///< nothing but their number
};

struct CheckpointOptions {
  /// The older variant: forward runs without gradients, and backward runs a backward pass of its own. It needs an input that
  /// requires a gradient, and backward over all leaves; it ignores determinism_check and
  /// early_stop, and refuses debug.
  bool use_reentrant = false;
  /// The repetition draws the same random numbers: from the default generators of the CPU and of the devices of the inputs.
  bool preserve_rng_state = true;
  DeterminismCheck determinism_check = DeterminismCheck::kDefault;
  /// The repetition ends as soon as all tensors are there that backward may ask for.
  bool early_stop = true;
  /// Errors list the operators that ran in forward and in the repetition. Slow.
  bool debug = false;
};

/// Chooses early_stop for the checkpoints whose forward runs in this thread while it lives, whatever their options.
class COHORT_API CheckpointEarlyStop {
 public:
  explicit CheckpointEarlyStop(bool is_enabled);
  CheckpointEarlyStop(const CheckpointEarlyStop&) = delete;
  CheckpointEarlyStop& operator=(const CheckpointEarlyStop&) = delete;
  ~CheckpointEarlyStop();

 private:
  int previous_;
};

/// The repetition saved other tensors than forward did, or backward asked twice for the same one.
class COHORT_API CheckpointError : public c10::Error {
  using Error::Error;
};

}  // namespace cohort
