// The gradients of values that were selected along a dimension: max, sort, topk and their like; cummax and cummin.
//
// LibTorch writes such a gradient into zeros that it makes itself, which are a plain tensor. These functions of it are made of
// others, so that no kernel below autograd is asked for them: ours stand above, and give whatever is no DTensor to LibTorch's.
#include <ATen/ATen.h>
#include <ATen/ops/cummaxmin_backward_native.h>
#include <ATen/ops/value_selecting_reduction_backward_native.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "cohort/dtensor/dispatch/call.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// One number that stands for all.
at::Tensor zeros_of(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options).expand_symint(sizes);
}

at::Tensor selected_gradient(const at::Tensor& grad, int64_t dim, const at::Tensor& indices, c10::SymIntArrayRef sizes,
                             bool keepdim) {
  if (!is_dtensor(grad) && !is_dtensor(indices)) {
    return at::native::value_selecting_reduction_backward_symint(grad, dim, indices, sizes, keepdim);
  }
  const bool is_kept = keepdim || sizes.empty();
  return zeros_of(sizes, grad.options())
      .scatter(dim, is_kept ? indices : indices.unsqueeze(dim), is_kept ? grad : grad.unsqueeze(dim));
}

at::Tensor running_extreme_gradient(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& indices,
                                    int64_t dim) {
  if (!is_dtensor(grad) && !is_dtensor(indices)) return at::native::cummaxmin_backward(grad, input, indices, dim);
  return zeros_of(input.sym_sizes(), input.options()).scatter_add(dim, indices, grad);
}

}  // namespace

void add_selection_gradients() {
  // As long as the process, as the dispatcher's tables.
  static auto* const libraries = new std::vector<std::unique_ptr<torch::Library>>;
  for (auto backend = static_cast<uint8_t>(c10::BackendComponent::CPUBit);
       backend <= static_cast<uint8_t>(c10::BackendComponent::EndOfBackendKeys); ++backend) {
    const auto key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::AutogradFunctionality,
                                                              static_cast<c10::BackendComponent>(backend));
    auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library->impl("value_selecting_reduction_backward", TORCH_FN(selected_gradient));
    library->impl("cummaxmin_backward", TORCH_FN(running_extreme_gradient));
    libraries->push_back(std::move(library));
  }
}

}  // namespace cohort::dtensor
