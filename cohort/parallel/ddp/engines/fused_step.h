/// FusedStep: the optimizer's step as a part of the reduction. At the end of backward each bucket's parameters are updated as
/// soon as its average is there, while the gradients are in the processor's cache and later buckets are still being reduced; then
/// the gradients are released. An optimizer of LibTorch makes ten passes over memory; this makes one, with the kernels of
/// Python's torch.optim.SGD, Adam and AdamW with fused=True. The numbers are theirs, which differ from LibTorch's own in
/// rounding.
///
/// State lives where the optimizer keeps it, so it can be saved, loaded, and used by optimizer.step(). Learning rates and other
/// options are read at each step, so schedulers work.
/// Thread-safety: none; runs in the thread that ends backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/reduction_observer.h"
#include "cohort/parallel/optim/fused_update.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::ddp {

class COHORT_TEST_API FusedStep final : public ReductionObserver {
 public:
  /// `optimizer` must outlive this. Parameters that it does not hold keep their gradients and are not updated.
  /// Throws c10::TypeError unless the optimizer is SGD, Adam or AdamW itself, of torch::optim or cohort::optim, and
  /// c10::ValueError if it holds none of the parameters, or one of them has gaps in its memory.
  FusedStep(torch::optim::Optimizer& optimizer, std::vector<at::Tensor> parameters);

  /// Updates those of the parameters `indices` that have gradients; their gradients are undefined afterwards.
  void on_bucket(const std::vector<size_t>& indices) override;

 private:
  static optim::FusedUpdate update_of(const torch::optim::Optimizer& optimizer);

  torch::optim::Optimizer& optimizer_;
  std::vector<at::Tensor> parameters_;
  optim::FusedUpdate update_;
  std::unordered_map<const void*, size_t> groups_;  // by parameter implementation
};

}  // namespace cohort::ddp
