// Gradients of values that were selected along a dimension (max, sort, topk, cummax, cummin) or by a mask, and one_hot.
//
// LibTorch writes these gradients into zeros that it makes itself, which are a plain tensor, or in place into a tensor that may
// have other placements. These functions are composed from others, so no kernel below autograd sees them. Ours are above, and
// call LibTorch's for tensors that are not DTensors.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/cummaxmin_backward_native.h>
#include <ATen/ops/masked_select_backward_native.h>
#include <ATen/ops/one_hot_native.h>
#include <ATen/ops/value_selecting_reduction_backward_native.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/Exception.h>

#include "cohort/comm/overrides/override.h"
#include "cohort/dtensor/dispatch/call.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

// Returns zeros that take the memory of one number.
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

at::Tensor masked_select_gradient(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mask) {
  if (!is_dtensor(grad) && !is_dtensor(input)) return at::native::masked_select_backward(grad, input, mask);
  const auto sizes = at::infer_size(input.sizes(), mask.sizes());
  return at::zeros_like(input.expand(sizes)).masked_scatter(mask, grad);
}

at::Tensor one_hot(const at::Tensor& classes, int64_t num_classes) {
  if (!is_dtensor(classes) || classes.scalar_type() != at::kLong || classes.numel() == 0) {
    return at::native::one_hot(classes, num_classes);
  }
  const auto least = classes.min().item<int64_t>(), greatest = classes.max().item<int64_t>();
  TORCH_CHECK(least >= 0, "Class values must be non-negative.");
  TORCH_CHECK(num_classes == -1 || num_classes > greatest, "Class values must be smaller than num_classes.");
  const auto all = at::arange(num_classes == -1 ? greatest + 1 : num_classes, at::TensorOptions(classes.device()));
  return classes.unsqueeze(-1).eq(all).to(at::kLong);
}

}  // namespace

void add_composed_functions() {
  for (auto backend = static_cast<uint8_t>(c10::BackendComponent::CPUBit);
       backend <= static_cast<uint8_t>(c10::BackendComponent::EndOfBackendKeys); ++backend) {
    const auto key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::AutogradFunctionality,
                                                              static_cast<c10::BackendComponent>(backend));
    const auto put = [&](const char* name, auto function) {
      comm::override_kernel("DTensor", name, key, torch::CppFunction(function));
    };
    put("aten::value_selecting_reduction_backward", TORCH_FN(selected_gradient));
    put("aten::cummaxmin_backward", TORCH_FN(running_extreme_gradient));
    put("aten::masked_select_backward", TORCH_FN(masked_select_gradient));
    put("aten::one_hot", TORCH_FN(one_hot));
  }
}

}  // namespace cohort::dtensor
