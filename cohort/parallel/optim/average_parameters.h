/// Averages parameters over the ranks of a group, for training in which ranks make local steps and average the models from time
/// to time. Names and numbers of torch/distributed/algorithms/model_averaging/utils.py.
///
/// Collective: every rank of the group calls with parameters of the same shapes and dtypes, in the same order.
/// Throws c10::DistBackendError when the exchange fails. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/optim/tensors.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::optim {

/// Replaces every parameter by its mean over the ranks of `process_group` (if null, the default group), in place; autograd does
/// not notice. Makes one all-reduce of a flat copy of all parameters, so it temporarily needs memory for one more model.
/// Parameters of several dtypes are converted to a common one for it. A rank outside the group changes nothing. Throws
/// c10::ValueError if there are no parameters.
COHORT_API void average_parameters(const Tensors& parameters, const Group& process_group = {});

/// Returns the parameters that have a gradient.
COHORT_API std::vector<at::Tensor> get_params_to_average(const Tensors& parameters);
/// The same for all parameter groups of an optimizer.
COHORT_API std::vector<at::Tensor> get_params_to_average(const torch::optim::Optimizer& optimizer);

/// Does average_parameters for the parameters that have a gradient.
COHORT_API void average_parameters_or_parameter_groups(const Tensors& parameters, const Group& process_group = {});
COHORT_API void average_parameters_or_parameter_groups(const torch::optim::Optimizer& optimizer,
                                                       const Group& process_group = {});

}  // namespace cohort::optim
