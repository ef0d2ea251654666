/// LowPrecision: keeps a module's parameters in a narrower dtype while forward and backward run, with the communication hook that
/// converts their gradients back. Implements Options::mixed_precision; follows _root_copy_hook of
/// torch/nn/parallel/distributed.py and torch/distributed/algorithms/ddp_comm_hooks/mixed_precision_hooks.py.
///
/// A parameter stays the same tensor: its data are exchanged (set_data), so the references of optimizers and autograd stay valid.
/// Values that a program writes into a parameter meanwhile are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"
#include "cohort/parallel/ddp/settings/options.h"
#include "cohort/parallel/module/gradient_hooks.h"

namespace cohort::ddp {

/// Throws c10::ValueError unless each dtype of `precision` is floating-point.
void check_dtypes(const MixedPrecision& precision);

/// Thread-safety: lower() and watch() as forward, reduce() as a communication hook.
class LowPrecision {
 public:
  /// Takes those of `parameters`, each listed once, that are floating-point and have another dtype than precision.param_dtype. No
  /// effect until lower().
  LowPrecision(const std::vector<at::Tensor>& parameters, const MixedPrecision& precision);
  ~LowPrecision();
  LowPrecision(const LowPrecision&) = delete;
  LowPrecision& operator=(const LowPrecision&) = delete;

  /// Before forward: lowers the parameters and, if autograd is on, their present gradients.
  void lower();
  /// After forward: lets the end of the backward pass from `outputs` that brings gradients restore the parameters. If autograd is
  /// off, restores them itself, unless they were low before.
  void watch(const std::vector<at::Tensor>& outputs);
  /// Restores the dtype of parameters and gradients. Not while forward or backward runs.
  void restore();
  /// The communication hook: averages in the dtype of the reduction, and restores the bucket's parameters.
  CommHookFuture reduce(const Group& group, GradBucket& bucket);

 private:
  struct Entry {
    at::Tensor parameter;
    at::ScalarType dtype;
    at::Tensor full = {};  // its data; undefined while the parameter itself has them
    at::Tensor low = {};
    uint32_t version = 0;  // the parameter's, when it was lowered
  };

  void lower(Entry& entry) const;
  static void restore(Entry& entry);
  void restore_after_backward();

  MixedPrecision precision_;
  std::vector<Entry> entries_;
  std::unordered_map<const void*, size_t> index_of_;
  bool was_low_ = false;                     // before the last lower()
  std::atomic<bool> is_watching_ = false;    // a callback at the end of backward is queued
  std::atomic<bool> has_gradients_ = false;  // of this backward pass
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<parallel::GradientHook> hooks_;
};

}  // namespace cohort::ddp
