/// GatherLog: records the results of gather_tensors() in a thread, for run_backward_in_parallel().
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"

namespace cohort::nn::parallel {

/// Records as long as it lives, in its thread. Logs may be nested: the inner one records.
class COHORT_API GatherLog {
 public:
  GatherLog();
  ~GatherLog();
  GatherLog(const GatherLog&) = delete;
  GatherLog& operator=(const GatherLog&) = delete;
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  /// Adds `joined` to the thread's log, if it has one.
  static void note(const at::Tensor& joined);

 private:
  GatherLog* before_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace cohort::nn::parallel
