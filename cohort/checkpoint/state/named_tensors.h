/// StateDict: tensors by name, in the order they were inserted. It is the type that torch::nn::Module::named_parameters()
/// returns, so what a module gives can be saved as it is.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace cohort::checkpoint {

using StateDict = torch::OrderedDict<std::string, at::Tensor>;

}  // namespace cohort::checkpoint
