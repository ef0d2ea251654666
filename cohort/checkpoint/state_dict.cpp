#include "cohort/checkpoint/state_dict.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

constexpr const char* kWrapperPrefix = "module.";

void collect(const torch::nn::Module& module, const std::string& prefix, StateDict& state) {
  const auto take = [&](const StateDict& tensors) {
    for (const auto& item : tensors) {
      if (item.value().defined()) state.insert(prefix + item.key(), item.value().detach());
    }
  };
  take(module.named_parameters(/*recurse=*/false));
  take(module.named_buffers(/*recurse=*/false));
  for (const auto& child : module.named_children()) collect(*child.value(), prefix + child.key() + ".", state);
}

// In PyTorch's order: for each module from the root down, the names that begin with its own and lead nowhere.
void collect_unexpected(const torch::nn::Module& module, const std::string& prefix,
                        const std::vector<std::string>& names, const StateDict& own,
                        std::vector<std::string>& unexpected) {
  const auto children = module.named_children();
  std::unordered_map<std::string, std::vector<std::string>> below;
  for (const std::string& name : names) {
    const size_t dot = name.find('.', prefix.size());
    const std::string child = dot == std::string::npos ? "" : name.substr(prefix.size(), dot - prefix.size());
    if (dot != std::string::npos && children.contains(child)) {
      below[child].push_back(name);
    } else if (!own.contains(name)) {
      unexpected.push_back(name);
    }
  }
  for (const auto& child : children) {
    const auto found = below.find(child.key());
    if (found == below.end()) continue;
    collect_unexpected(*child.value(), prefix + child.key() + ".", found->second, own, unexpected);
  }
}

int64_t count_known(const StateDict& state, const StateDict& own, size_t num_prefix_chars) {
  return std::count_if(state.begin(), state.end(),
                       [&](const auto& item) { return own.contains(item.key().substr(num_prefix_chars)); });
}

// A module may have a child named "module", so the prefix goes only when more names fit without it.
StateDict without_wrapper_prefix(const StateDict& state, const StateDict& own) {
  const size_t length = std::string(kWrapperPrefix).size();
  const bool has_prefix =
      std::all_of(state.begin(), state.end(), [](const auto& item) { return item.key().starts_with(kWrapperPrefix); });
  if (!has_prefix || count_known(state, own, length) <= count_known(state, own, 0)) return state;
  StateDict result;
  for (const auto& item : state) result.insert(item.key().substr(length), item.value());
  return result;
}

// "torch::nn::LinearImpl" is Linear to its users.
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  const size_t template_begin = name.find('<');
  const size_t scope = name.rfind("::", template_begin);
  if (scope != std::string::npos) name = name.substr(scope + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string size_text(const at::Tensor& tensor) { return c10::str("torch.Size(", tensor.sizes(), ")"); }

// Old files hold scalars as tensors of one element.
at::Tensor adapt(const at::Tensor& value, const at::Tensor& own) {
  return own.dim() == 0 && value.dim() == 1 && value.size(0) == 1 ? value[0] : value;
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict state;
  collect(module, "", state);
  return state;
}

IncompatibleKeys load_state_dict(torch::nn::Module& module, const StateDict& given, LoadStateDictOptions options) {
  const StateDict own = state_dict(module);
  const StateDict state = without_wrapper_prefix(given, own);
  IncompatibleKeys keys;
  collect_unexpected(module, "", state.keys(), own, keys.unexpected_keys);
  std::vector<std::string> errors;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& item : own) {
    const at::Tensor* value = state.find(item.key());
    if (!value) {
      keys.missing_keys.push_back(item.key());
      continue;
    }
    copies.emplace_back(item.value(), adapt(*value, item.value()));
    if (copies.back().second.sizes() == item.value().sizes()) continue;
    errors.push_back(c10::str("size mismatch for ", item.key(), ": copying a param with shape ", size_text(*value),
                              " from checkpoint, the shape in current model is ", size_text(item.value()), "."));
  }
  if (options.strict && !keys.unexpected_keys.empty()) {
    errors.insert(errors.begin(),
                  c10::str("Unexpected key(s) in state_dict: ", base::quoted_list(keys.unexpected_keys), ". "));
  }
  if (options.strict && !keys.missing_keys.empty()) {
    errors.insert(errors.begin(),
                  c10::str("Missing key(s) in state_dict: ", base::quoted_list(keys.missing_keys), ". "));
  }
  TORCH_CHECK(errors.empty(), "Error(s) in loading state_dict for ", class_name(module), ":\n\t",
              c10::Join("\n\t", errors));
  const c10::AutoGradMode no_grad(false);
  for (auto& [to, from] : copies) to.copy_(from);
  return keys;
}

}  // namespace cohort::checkpoint
