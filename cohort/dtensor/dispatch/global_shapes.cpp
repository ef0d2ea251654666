#include "cohort/dtensor/dispatch/global_shapes.h"

#include <ATen/ATen.h>

#include <utility>

namespace cohort::dtensor {
namespace {

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue argument_on_meta(const c10::IValue& value) {
  if (value.isTensor()) return on_meta(value.toTensor());
  if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (auto& tensor : list) tensor = on_meta(tensor);
    return list;
  }
  if (!is_list_of_optional_tensors(value)) return value;
  auto list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) {
    const c10::IValue item = list.get(i);
    if (item.isTensor()) list.set(i, on_meta(item.toTensor()));
  }
  return list;
}

}  // namespace

std::vector<Shape> global_shapes(const Call& call) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.num_arguments(); ++i) stack.push_back(argument_on_meta(call.argument(i)));
  call.op().callBoxed(stack);
  std::vector<Shape> shapes;
  for (const auto& result : stack) {
    if (!result.isTensor() && !result.isTensorList()) continue;
    const auto tensors = result.isTensor() ? std::vector<at::Tensor>{result.toTensor()} : result.toTensorVector();
    for (const auto& tensor : tensors) {
      shapes.push_back(tensor.defined() ? Shape{tensor.sizes().vec(), tensor.strides().vec()} : Shape());
    }
  }
  return shapes;
}

Shape shape_like(const at::Tensor& tensor, std::optional<at::MemoryFormat> format) {
  const auto like = at::empty_like(on_meta(tensor), at::TensorOptions(), format);
  return {like.sizes().vec(), like.strides().vec()};
}

}  // namespace cohort::dtensor
