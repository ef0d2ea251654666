#include "cohort/parallel/fsdp/tensors/absent_gradients.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <string>
#include <utility>

#include "cohort/parallel/fsdp/tensors/module_tensor.h"

namespace cohort::fsdp {
namespace {

struct AbsentGradient final : c10::TensorImpl {
  using c10::TensorImpl::TensorImpl;
};

bool is_absent(const at::Tensor& gradient) {
  return gradient.defined() && dynamic_cast<const AbsentGradient*>(own_shard(gradient).unsafeGetTensorImpl());
}

std::string message_of(const std::string& name) {
  return "[cohort] fully_shard: the gradient of parameter '" + name +
         "' is in this rank's shard, but something has read it from the full parameter\n"
         "  hint: build optimizers on parameters() of the wrapper, and clip the gradients of these. An optimizer on "
         "the parameters of the module inside trains nothing";
}

at::Tensor make_absent(const at::Tensor& values, const std::string& name) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), values.nbytes(),
                                                       at::DataPtr(nullptr, values.device()),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(message_of(name));
  const auto key = c10::computeDispatchKey(values.scalar_type(), at::kStrided, values.device());
  auto tensor = at::detail::make_tensor<AbsentGradient>(c10::Storage(std::move(storage)), c10::DispatchKeySet(key),
                                                        values.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(values.sizes());
  return tensor;
}

// Without this autograd would add the gradients of a backward pass to the placeholder.
void take_away_before_backward(const at::Tensor& parameter) {
  const c10::weak_intrusive_ptr<c10::TensorImpl> weak(parameter.getIntrusivePtr());
  parameter.register_hook([weak](const at::Tensor&) {
    if (auto impl = weak.lock()) {
      const at::Tensor unsharded(std::move(impl));
      if (is_absent(unsharded.grad())) unsharded.mutable_grad().reset();
    }
  });
}

}  // namespace

AbsentGradients::~AbsentGradients() {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& unsharded = parameters_[i].full;
    if (is_absent(unsharded.grad())) unsharded.mutable_grad().reset();
  }
}

void AbsentGradients::put() {
  const at::NoGradGuard no_grad;
  gradients_.resize(parameters_.size());
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& [name, full, shard, offset, dim, spec, part] = parameters_[i];
    if (!full.requires_grad() || full.grad().defined()) continue;
    if (!gradients_[i].defined()) {
      gradients_[i] = laid_as(full, make_absent(own_shard(full), name));
      take_away_before_backward(full);
    }
    full.mutable_grad() = gradients_[i];
  }
}

at::Tensor full_gradient(const at::Tensor& parameter) {
  return is_absent(parameter.grad()) ? at::Tensor() : parameter.grad();
}

at::Tensor take_full_gradient(const at::Tensor& parameter) {
  auto gradient = std::exchange(parameter.mutable_grad(), at::Tensor());
  return is_absent(gradient) ? at::Tensor() : gradient;
}

}  // namespace cohort::fsdp
