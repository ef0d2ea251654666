/// What a module's state dict consists of, and whether names and shapes of another one fit it.
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
  at::Tensor tensor;  ///< the module's own
  bool is_parameter = false;
};
/// In PyTorch's order, without buffers that are not persistent and what is undefined.
std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module);

using Names = std::unordered_set<std::string>;

/// Without "_orig_mod.", "_fsdp_wrapped_module." and "_checkpoint_wrapped_module."
std::string without_wrappers(const std::string& name);
/// The names as a module that has `own` ones would have them, without what wrappers have put in, in the same order.
std::vector<std::string> canonical_names(const std::vector<std::string>& names, const Names& own);

struct NamedSizes {
  std::string name;
  std::vector<int64_t> sizes;
};
using SizesOf = std::function<std::vector<int64_t>(const std::string& name)>;

/// `given`: canonical names; `sizes_of` is asked for those that the module has. Throws c10::Error as load_state_dict says.
IncompatibleKeys check_fit(const torch::nn::Module& module, const std::vector<NamedSizes>& own,
                           const std::vector<std::string>& given, const SizesOf& sizes_of,
                           const LoadStateDictOptions& options);

/// As Python prints a shape: "torch.Size([2, 3])".
std::string torch_size(at::IntArrayRef sizes);

/// Old files hold scalars as tensors of one element.
inline bool is_old_scalar(at::IntArrayRef value, at::IntArrayRef own) {
  return own.empty() && value.size() == 1 && value[0] == 1;
}

}  // namespace cohort::checkpoint::detail
