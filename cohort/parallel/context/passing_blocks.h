/// Pairs of tensors that pass by all ranks of a group: keys and values, and the gradients that they collect on their way.
///
/// Every rank goes through num_ranks steps: in step i it has the pair of rank (own - i) mod num_ranks. Collective; no autograd.
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
  /// The pair of the next step, beginning with step 0, this rank's own. What follows is on its way meanwhile.
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
  /// Of pairs such as `own`, in `dtype`.
  PassingGradients(const GroupPlace& place, RotateMethod method, const TensorPair& own, at::ScalarType dtype);
  /// Where step i's gradients are to be added, in place; first step 0, then in order. A step without gradients calls it, too.
  TensorPair next();
  /// After the last step: the sum of all ranks' gradients of this rank's pair.
  TensorPair finish();

 private:
  const GroupPlace place_;
  const RotateMethod method_;
  const TensorPair shapes_;
  at::Tensor packed_;  // [num_ranks, numbers of a pair], or the pair of this step
  int64_t step_ = 0;
};

}  // namespace cohort::parallel
