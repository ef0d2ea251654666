/// The tensors of a module's state dict, and the check of other names and shapes against them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "cohort/checkpoint/state/state_dict.h"

namespace cohort::checkpoint::detail {

struct ModuleTensor {
  std::string name;
  at::Tensor tensor;  ///< the module's own tensor
  bool is_parameter = false;
};
/// Returns the tensors in PyTorch's order, without non-persistent buffers and undefined tensors.
std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module);

using Names = std::unordered_set<std::string>;

/// Removes "_orig_mod.", "_fsdp_wrapped_module." and "_checkpoint_wrapped_module." from the name.
std::string without_wrappers(const std::string& name);
/// Removes what wrappers have added to the names, for a module with the names `own`. Keeps the order.
std::vector<std::string> canonical_names(const std::vector<std::string>& names, const Names& own);

struct NamedSizes {
  std::string name;
  std::vector<int64_t> sizes;
};
using SizesOf = std::function<std::vector<int64_t>(const std::string& name)>;

/// `given`: canonical names. Calls `sizes_of` for those that the module has. Throws c10::Error as load_state_dict says.
IncompatibleKeys check_fit(const torch::nn::Module& module, const std::vector<NamedSizes>& own,
                           const std::vector<std::string>& given, const SizesOf& sizes_of,
                           const LoadStateDictOptions& options);

/// Returns a shape as Python prints it: "torch.Size([2, 3])".
std::string torch_size(at::IntArrayRef sizes);

/// Whether a tensor of one element is a scalar: old files have scalars in this form.
inline bool is_old_scalar(at::IntArrayRef value, at::IntArrayRef own) {
  return own.empty() && value.size() == 1 && value[0] == 1;
}

}  // namespace cohort::checkpoint::detail
