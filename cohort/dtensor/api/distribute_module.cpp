#include "cohort/dtensor/api/distribute_module.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <utility>
#include <vector>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort {
namespace {

// Returns the gradient in its parameter's placements. A plain gradient counts as replicated: all ranks have the same.
at::Tensor laid_gradient(const at::Tensor& parameter, const at::Tensor& gradient, const Placements& placements) {
  TORCH_CHECK(is_dtensor(parameter), "[cohort] DTensor: a parameter of shape ", parameter.sizes(),
              " that was distributed is a plain tensor now, so that each rank would train its own\n  hint: give "
              "set_data a DTensor, or call distribute_module once more; torch::load leaves parameters what they are");
  const DeviceMesh& mesh = DTensor(parameter.detach()).device_mesh();
  const auto of_mesh = is_dtensor(gradient) ? DTensor(gradient)
                                            : DTensor::from_local(gradient, mesh, Placements(mesh.ndim(), Replicate()));
  auto wanted = placements;
  for (const auto axis : dtensor::dtensor_data(parameter).left_sums) {
    const auto& as_it_is = of_mesh.placements().at(static_cast<size_t>(axis));
    if (as_it_is.is_partial()) wanted.at(static_cast<size_t>(axis)) = as_it_is;
  }
  return of_mesh.placements() == wanted ? at::Tensor(of_mesh) : at::Tensor(of_mesh.redistribute(wanted));
}

// Sets a hook. It does not record; if wanted, the gradient of a gradient still flows through the redistribution.
void lay_gradient_as(const at::Tensor& parameter, const Placements& placements) {
  parameter.register_hook([placements, weak = c10::weak_intrusive_ptr<c10::TensorImpl>(parameter.getIntrusivePtr())](
                              const at::Tensor& gradient) -> at::Tensor {
    auto impl = weak.lock();
    return impl ? laid_gradient(at::Tensor(std::move(impl)), gradient, placements) : gradient;
  });
}

// Replaces Tensor::set_data, which rejects tensors of private devices with other dispatch keys as another type.
void take_data(const at::Tensor& parameter, const DTensor& distributed) {
  auto* const impl = parameter.unsafeGetTensorImpl();
  const bool is_alike = parameter.device() == distributed.device() && parameter.dtype() == distributed.dtype();
  if (is_alike && !impl->has_compatible_shallow_copy_type(distributed.key_set())) {
    impl->shallow_copy_from(distributed.getIntrusivePtr());
  } else {
    parameter.set_data(distributed);
  }
}

void distribute_rest(torch::nn::Module& module, const DeviceMesh& mesh, std::optional<int> src_rank) {
  const auto full = dtensor::replicated(mesh);
  for (const auto& list : {module.parameters(/*recurse=*/false), module.buffers(/*recurse=*/false)}) {
    for (const auto& tensor : list) {
      if (tensor.defined() && !is_dtensor(tensor)) dtensor::distribute_parameter(tensor, mesh, full, src_rank);
    }
  }
}

}  // namespace

}  // namespace cohort

namespace cohort::dtensor {

void distribute_parameter(const at::Tensor& parameter, const DeviceMesh& mesh, const Placements& placements,
                          std::optional<int> src_rank) {
  TORCH_CHECK_VALUE(!is_dtensor(parameter), "[cohort] distribute_parameter: the parameter is a DTensor already, ",
                    DTensor(parameter).spec().to_string(),
                    "\n  hint: change its placements with DTensor(x).redistribute(placements)");
  TORCH_CHECK_VALUE(!parameter.grad().defined(),
                    "[cohort] distribute_parameter: the parameter has a gradient, which would stay a plain tensor"
                    "\n  hint: call zero_grad() before");
  const DTensor distributed = distribute_tensor(parameter.detach(), mesh, placements, src_rank);
  take_data(parameter, distributed);
  if (parameter.requires_grad()) lay_gradient_as(parameter, distributed.placements());
}

void distribute_parameters(torch::nn::Module& module, const DeviceMesh& mesh,
                           const std::map<std::string, Placements>& placements, std::optional<int> src_rank) {
  const auto parameters = module.named_parameters(/*recurse=*/false), buffers = module.named_buffers(/*recurse=*/false);
  for (const auto& [name, wanted] : placements) {
    const auto* const parameter = parameters.find(name);
    const auto* const tensor = parameter && parameter->defined() ? parameter : buffers.find(name);
    TORCH_CHECK_VALUE(tensor, "[cohort] distribute_parameters: ", module.name(), " has no parameter \"", name,
                      "\"\n  hint: it has ", c10::Join(", ", parameters.keys()));
    distribute_parameter(*tensor, mesh, wanted, src_rank);
  }
}

}  // namespace cohort::dtensor

namespace cohort {

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFn& partition,
                       std::optional<int> src_rank) {
  if (partition) partition("", module, mesh);
  distribute_rest(module, mesh, src_rank);
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    if (partition) partition(child.key(), *child.value(), mesh);
    distribute_rest(*child.value(), mesh, src_rank);
  }
}

}  // namespace cohort
