#include "cohort/parallel/ddp/saved_gradients.h"

#include "cohort/parallel/ddp/device_streams.h"

namespace cohort::ddp {

void SavedGradients::add(size_t index, const at::Tensor& gradient, at::ScalarType dtype) {
  if (gradient.defined()) saved_.push_back({index, gradient.to(dtype), gradient.detach().clone()});
}

void SavedGradients::restore(const std::vector<at::Tensor>& parameters, const std::function<bool(size_t)>& is_wanted) {
  for (auto& saved : saved_) {
    if (!is_wanted(saved.index)) continue;
    saved.gradient.copy_(saved.values);
    used_in_current_stream(saved.values);
    parameters[saved.index].mutable_grad() = saved.gradient;
  }
}

}  // namespace cohort::ddp
