/// GradientNorm: the total norm of the averaged gradients, computed bucket by bucket while later buckets are still on their way.
/// By then all ranks have the same gradients, so each computes the norm of its share only, and one number is summed at the end.
/// Thread-safety: none; runs in the thread that ends backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/reduction_observer.h"

namespace cohort::ddp {

class COHORT_TEST_API GradientNorm final : public ReductionObserver {
 public:
  /// Throws c10::ValueError unless `norm_type` is positive; it may be infinity.
  GradientNorm(Group group, std::vector<at::Tensor> parameters, double norm_type);

  void on_bucket(const std::vector<size_t>& indices) override;
  /// Collective.
  void on_end() override;
  /// Uses another group, and forgets a step that has failed.
  void use_group(const Group& group);
  /// For gradients that may differ between ranks, such as after a communication hook: each rank then computes the norm of its
  /// own.
  void look_at_all() { looks_at_all_ = true; }
  /// The norm of the last step, as a 0-dimensional tensor. Throws c10::Error before the first step has ended.
  const at::Tensor& value() const;

 private:
  at::Tensor total(const at::Tensor& norm) const;

  Group group_;
  std::vector<at::Tensor> parameters_;
  double norm_type_;
  bool looks_at_all_ = false;
  std::vector<at::Tensor> norms_;  // of this rank's shares in this step, on the first parameter's device
  at::Tensor value_;
};

}  // namespace cohort::ddp
