/// AbsentGradients: placeholders for the gradients of full parameters between backward passes. Their gradients are in this rank's
/// shards, so an optimizer that was built on the module's own parameters would find no gradients, and silently train nothing.
///
/// A placeholder has the parameter's shape and no memory: reading it throws a c10::Error that names the mistake. A backward pass
/// removes it before it brings a gradient. Thread-safety: as the parameters.
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

  /// Puts one on each parameter that is trained and has no gradient.
  void put();

 private:
  const std::vector<ShardedParameter>& parameters_;
  std::vector<at::Tensor> gradients_;
};

/// Returns the gradient of a full parameter; undefined if it has none, or a placeholder.
at::Tensor full_gradient(const at::Tensor& parameter);
/// The same, and removes it from the parameter.
at::Tensor take_full_gradient(const at::Tensor& parameter);

}  // namespace cohort::fsdp
