#include "cohort/parallel/optim/average_parameters.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include "cohort/comm/call/purpose.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/group_backend.h"

namespace cohort::optim {
namespace {

const comm::Purpose kParameterAverage(14, "an average of the ranks' parameters", comm::Purpose::kByName);

// Prevents the exchange from meeting one of another group that is still in flight on the device.
void synchronize_accelerator() {
  const auto type = at::getAccelerator();
  if (!type) return;
  const c10::impl::VirtualGuardImpl guard(*type);
  guard.synchronizeDevice(guard.getDevice().index());
}

}  // namespace

void average_parameters(const Tensors& parameters, const Group& process_group) {
  if (!is_member(process_group)) return;
  TORCH_CHECK_VALUE(!parameters.list().empty(),
                    "[cohort] average_parameters: there are no parameters to average. Parameters without a gradient "
                    "are skipped; average after backward(), before zero_grad()");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const auto& parameter : parameters.list()) parts.push_back(parameter.detach().reshape(-1));
  const auto flat = at::cat(parts).div_(comm::resolve(process_group)->getSize());
  synchronize_accelerator();
  const comm::CalledFor purpose(kParameterAverage);
  all_reduce(flat, {.group = process_group});
  int64_t offset = 0;
  for (const auto& parameter : parameters.list()) {
    parameter.variable_data().copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

std::vector<at::Tensor> get_params_to_average(const Tensors& parameters) {
  std::vector<at::Tensor> with_gradient;
  for (const auto& parameter : parameters.list()) {
    if (parameter.grad().defined()) with_gradient.push_back(parameter);
  }
  return with_gradient;
}

std::vector<at::Tensor> get_params_to_average(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> with_gradient;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : get_params_to_average(group.params())) with_gradient.push_back(parameter);
  }
  return with_gradient;
}

void average_parameters_or_parameter_groups(const Tensors& parameters, const Group& process_group) {
  average_parameters(get_params_to_average(parameters), process_group);
}

void average_parameters_or_parameter_groups(const torch::optim::Optimizer& optimizer, const Group& process_group) {
  average_parameters(get_params_to_average(optimizer), process_group);
}

}  // namespace cohort::optim
