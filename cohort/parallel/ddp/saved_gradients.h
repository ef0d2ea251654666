/// The gradients that parameters had before a step in which this rank did not use them. See [Note: unused parameters] in
/// overlap_engine.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace cohort::ddp {

class SavedGradients {
 public:
  /// Copies `gradient` of parameter number `index`, which is of `dtype`, in the current stream. An undefined one is not kept.
  void add(size_t index, const at::Tensor& gradient, at::ScalarType dtype);
  /// Gives the saved gradients back, bit for bit, to those parameters for which `is_wanted(index)` holds.
  void restore(const std::vector<at::Tensor>& parameters, const std::function<bool(size_t)>& is_wanted);
  void clear() { saved_.clear(); }

 private:
  struct Saved {
    size_t index;
    at::Tensor gradient;
    at::Tensor values;
  };
  std::vector<Saved> saved_;
};

}  // namespace cohort::ddp
