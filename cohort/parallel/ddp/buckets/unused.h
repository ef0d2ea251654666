/// Finds the parameters that a forward pass did not use: walks the autograd graph from its outputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_map>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

class COHORT_TEST_API UnusedSearch {
 public:
  /// Keeps the parameters' gradient accumulators alive: autograd holds them only weakly.
  explicit UnusedSearch(const std::vector<at::Tensor>& parameters);

  /// Returns the indices of the parameters that no output depends on. Cost: one visit per node of the graph.
  std::vector<size_t> unused(const std::vector<at::Tensor>& outputs) const;

 private:
  std::vector<torch::autograd::Edge> accumulators_;
  std::unordered_map<torch::autograd::Node*, size_t> index_of_;
};

}  // namespace cohort::ddp
