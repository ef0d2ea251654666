/// AbsentGradients: what stands as the gradient of whole parameters between backward passes. Their gradients are in this rank's
/// shards, so an optimizer that was built on the module's own parameters would find none, and train nothing without a word.
///
/// It has the parameter's shape and no memory: whoever reads it gets a c10::Error that names the mistake. A backward pass takes
/// it away before it brings a gradient. Thread-safety: as the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

class AbsentGradients {
 public:
  explicit AbsentGradients(const std::vector<ShardedParameter>& parameters) : parameters_(parameters) {}
  ~AbsentGradients();
  AbsentGradients(const AbsentGradients&) = delete;
  AbsentGradients& operator=(const AbsentGradients&) = delete;

  /// For each parameter that is trained and has no gradient.
  void put();

 private:
  const std::vector<ShardedParameter>& parameters_;
  std::vector<at::Tensor> gradients_;
};

/// The gradient of a whole parameter; undefined: it has none, or an absent one.
at::Tensor gradient_of_whole(const at::Tensor& parameter);
/// The same, which it has no longer then.
at::Tensor take_gradient_of_whole(const at::Tensor& parameter);

}  // namespace cohort::fsdp
