/// The arguments of an operator called with tensors of a simulated device.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <vector>

namespace cohort::sim {

using Values = std::vector<c10::IValue>;

/// The one device of a call's tensors, else the one that it names. Throws c10::Error for tensors of two devices.
std::optional<c10::Device> device_of_call(const Values& arguments);

/// The value with each tensor in it converted. `is_index`: it stands in a list of indices.
c10::IValue convert_tensors(const c10::IValue& value,
                            const std::function<at::Tensor(const at::Tensor&, bool is_index)>& convert);

/// What a kernel gets: tensors of the device as host views; numbers and indices on the CPU as copies, as a GPU takes them in a
/// kernel's arguments. Throws c10::Error for other CPU tensors.
at::Tensor as_kernel_argument(const at::Tensor& tensor, bool is_index);
/// The tensor without contents, to find the sizes of results.
at::Tensor as_meta(const at::Tensor& tensor, bool is_index);

/// All of a call: devices become the CPU, the generator becomes one seeded for this kernel.
Values kernel_arguments(const c10::FunctionSchema& schema, const Values& given);
Values meta_arguments(const c10::FunctionSchema& schema, const Values& given);

}  // namespace cohort::sim
