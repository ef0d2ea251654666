/// StateDict: tensors by name, in the order in which they were inserted. torch::nn::Module::named_parameters() returns this type,
/// so its result can be saved directly.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace cohort::checkpoint {

using StateDict = torch::OrderedDict<std::string, at::Tensor>;

}  // namespace cohort::checkpoint
