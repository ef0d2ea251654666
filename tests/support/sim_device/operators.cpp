#include "tests/support/sim_device/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "tests/support/sim_device/copies.h"
#include "tests/support/sim_device/dispatch_key.h"
#include "tests/support/sim_device/fallback.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using at::Tensor;

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<c10::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(sizes, device_allocator(), tensor_keys(), c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), tensor_keys(),
                                           c10::dtype_or_default(dtype));
}

Tensor& copy_into(Tensor& self, const Tensor& source, bool non_blocking) {
  copy_from(source, self, non_blocking);
  return self;
}

at::Scalar local_scalar(const Tensor& tensor) {
  current_queue(tensor.device().index()).wait_for_all();
  return at::_local_scalar_dense(host_view(tensor));
}

// The CPU's kernel draws from the CPU's generator.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, at::kBool)};
  const auto mask = at::empty_like(input, at::kBool).bernoulli_(1 - p);
  return {input.mul(mask).mul_(p < 1 ? 1 / (1 - p) : 0), mask};
}

const Tensor& resize(const Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  auto* const impl = self.unsafeGetTensorImpl();
  const auto elements = c10::multiply_integers(sizes) + self.storage_offset();
  const auto bytes = static_cast<size_t>(elements) * self.element_size();
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  impl->set_sizes_contiguous(sizes);
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

void record_stream(Tensor& tensor, c10::Stream stream) { record_use(tensor.storage().data_ptr(), queue_of(stream)); }

Tensor& set_storage(Tensor& self, at::Storage source) { return at::native::set_(self, std::move(source)); }

// 0: by plain operators.
void choose_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, int64_t{0});
}

}  // namespace

void register_operators() {
  static auto* const library = new torch::Library(torch::Library::IMPL, "aten", dispatch_key(), __FILE__, __LINE__);
  auto& m = *library;
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy_into);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("record_stream", record_stream);
  m.impl("native_dropout", native_dropout);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("view.dtype", at::native::view_dtype);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("_fused_sdp_choice", torch::CppFunction::makeFromBoxedFunction<&choose_attention>());
  // Composites with a choice of libraries by device type inside.
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
}

}  // namespace cohort::sim
