#include "tests/support/sim_device/arguments.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <utility>

#include "tests/support/sim_device/generator.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

void note_device(const at::Tensor& tensor, std::optional<c10::Device>& device) {
  if (!tensor.defined() || tensor.device().type() != type()) return;
  TORCH_CHECK(!device || *device == tensor.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", device->str(), " and ",
              tensor.device().str(), "!");
  device = tensor.device();
}

// A number stays one: it takes part in no type promotion.
at::Tensor keep_wrapped(at::Tensor copy, const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

bool is_generator(const c10::FunctionSchema& schema, size_t argument) {
  return schema.arguments()[argument].name() == "generator";
}

}  // namespace

std::optional<c10::Device> device_of_call(const Values& arguments) {
  std::optional<c10::Device> device;
  for (const auto& value : arguments) {
    convert_tensors(value, [&](const at::Tensor& tensor, bool) {
      note_device(tensor, device);
      return tensor;
    });
  }
  for (const auto& value : arguments) {
    if (!device && value.isDevice()) device = value.toDevice();
  }
  return device;
}

c10::IValue convert_tensors(const c10::IValue& value,
                            const std::function<at::Tensor(const at::Tensor&, bool)>& convert) {
  if (value.isTensor()) return convert(value.toTensor(), false);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& tensor : value.toTensorVector()) list.push_back(convert(tensor, false));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(convert(*tensor, true)) : std::nullopt);
    }
    return list;
  }
  return value;
}

at::Tensor as_kernel_argument(const at::Tensor& tensor, bool is_index) {
  if (!tensor.defined()) return tensor;
  if (tensor.device().type() == type()) return host_view(tensor);
  TORCH_CHECK(tensor.dim() == 0 || is_index,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::DeviceTypeName(type(), /*lower_case=*/true), " and ", tensor.device().str(), "!");
  return keep_wrapped(tensor.clone(), tensor);
}

at::Tensor as_meta(const at::Tensor& tensor, bool) {
  if (!tensor.defined()) return tensor;
  const auto options = at::dtype(tensor.scalar_type()).device(at::kMeta);
  return keep_wrapped(at::empty_strided(tensor.sizes(), tensor.strides(), options), tensor);
}

Values kernel_arguments(const c10::FunctionSchema& schema, const Values& given) {
  Values result;
  for (size_t i = 0; i < given.size(); ++i) {
    if (is_generator(schema, i)) {
      const auto generator = given[i].isNone() ? at::Generator() : given[i].toGenerator();
      result.emplace_back(generator_of_kernel(generator, current_device()));
    } else if (given[i].isDevice()) {
      result.emplace_back(c10::Device(at::kCPU));
    } else {
      result.push_back(convert_tensors(given[i], as_kernel_argument));
    }
  }
  return result;
}

Values meta_arguments(const c10::FunctionSchema& schema, const Values& given) {
  Values result;
  for (size_t i = 0; i < given.size(); ++i) {
    if (is_generator(schema, i)) {
      result.emplace_back();
    } else if (given[i].isDevice()) {
      result.emplace_back(c10::Device(at::kMeta));
    } else {
      result.push_back(convert_tensors(given[i], as_meta));
    }
  }
  return result;
}

}  // namespace cohort::sim
