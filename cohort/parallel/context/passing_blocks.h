/// Passes pairs of tensors through all ranks of a group: keys and values, and their gradients, which are summed on the way.
///
/// Every rank makes num_ranks steps: in step i it has the pair of rank (own - i) mod num_ranks. Collective; no autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "cohort/parallel/context/ring_attention.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

using TensorPair = std::pair<at::Tensor, at::Tensor>;

class PassingBlocks {
 public:
  PassingBlocks(const GroupPlace& place, RotateMethod method, const TensorPair& own);
  /// Returns the pair of the next step, beginning with step 0, this rank's own. The transfer of the following pair runs
  /// meanwhile.
  TensorPair next();

 private:
  const GroupPlace place_;
  const RotateMethod method_;
  const TensorPair own_;
  at::Tensor on_its_way_;  // all pairs, or the next one
  int64_t step_ = 0;
};

class PassingGradients {
 public:
  /// For pairs such as `own`, in `dtype`.
  PassingGradients(const GroupPlace& place, RotateMethod method, const TensorPair& own, at::ScalarType dtype);
  /// Returns the tensors to which step i's gradients must be added, in place; first step 0, then in order. Call it also for a
  /// step without gradients.
  TensorPair next();
  /// After the last step: returns the sum of all ranks' gradients of this rank's pair.
  TensorPair finish();

 private:
  const GroupPlace place_;
  const RotateMethod method_;
  const TensorPair shapes_;
  at::Tensor packed_;  // [num_ranks, elements of a pair], or the pair of this step
  int64_t step_ = 0;
};

}  // namespace cohort::parallel
