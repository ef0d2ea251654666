#include "cohort/checkpoint/state/module_names.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/state/persistence.h"
#include "cohort/parallel/pipeline/stage_list.h"

namespace cohort::checkpoint {

namespace {

using torch::nn::Module;

constexpr std::string_view kWrapperPrefix = "module.";
constexpr std::string_view kNumBatches = "num_batches_tracked";
constexpr int64_t kVersionWithNumBatches = 2;

// The stages of a pipeline have the full model's names.
std::string prefix_of_child(const Module& module, const std::string& prefix, const std::string& key) {
  return dynamic_cast<const pipeline::StageListImpl*>(&module) ? prefix : prefix + key + ".";
}

void collect(const Module& module, const std::string& prefix, std::vector<detail::ModuleTensor>& tensors) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) tensors.push_back({prefix + item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (!item.value().defined() || is_non_persistent(item.value())) continue;
    tensors.push_back({prefix + item.key(), item.value(), false});
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix_of_child(module, prefix, child.key()), tensors);
  }
}

// Collects unexpected names in PyTorch's order: for each module, from the root down, names with its prefix that match nothing.
void collect_unexpected(const Module& module, const std::string& prefix, const std::vector<std::string>& names,
                        const detail::Names& own, std::vector<std::string>& unexpected) {
  if (dynamic_cast<const pipeline::StageListImpl*>(&module)) {
    std::copy_if(names.begin(), names.end(), std::back_inserter(unexpected),
                 [&](const std::string& name) { return !own.contains(name); });
    return;
  }
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

int64_t count_known(const std::vector<std::string>& names, const detail::Names& own, size_t num_prefix_chars) {
  return std::count_if(names.begin(), names.end(),
                       [&](const std::string& name) { return own.contains(name.substr(num_prefix_chars)); });
}

// Returns the name that users know: "Linear" for "torch::nn::LinearImpl".
std::string class_name(const Module& module) {
  std::string name = module.name();
  const size_t template_begin = name.find('<');
  const size_t scope = name.rfind("::", template_begin);
  if (scope != std::string::npos) name = name.substr(scope + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

// Returns Python's class attribute _version: 2 for modules with running statistics.
int64_t version_of(const Module& module) {
  const std::string name = class_name(module);
  const bool is_norm = name.starts_with("BatchNorm") || name.starts_with("InstanceNorm") || name == "SyncBatchNorm";
  return is_norm ? kVersionWithNumBatches : 1;
}

void collect_versions(const Module& module, const std::string& prefix,
                      std::vector<std::pair<std::string, int64_t>>& versions) {
  versions.emplace_back(prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1), version_of(module));
  for (const auto& child : module.named_children()) {
    collect_versions(*child.value(), prefix_of_child(module, prefix, child.key()), versions);
  }
}

// Whether "layers.1.num_batches_tracked" may be missing: the module's version is from before this buffer, or unknown.
bool may_be_missing(const std::string& name, const detail::Names& own, const c10::IValue& metadata) {
  if (!name.ends_with(kNumBatches)) return false;
  const std::string prefix = name.substr(0, name.size() - kNumBatches.size());
  if (!own.contains(prefix + "running_mean")) return false;
  if (!metadata.isGenericDict()) return true;
  const auto of_module = detail::entry_of(metadata, prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1));
  const auto version = of_module.isGenericDict() ? detail::entry_of(of_module, "version") : c10::IValue();
  return !version.isInt() || version.toInt() < kVersionWithNumBatches;
}

// Hints at similar names, for typing errors; not for another model.
std::string hints(const IncompatibleKeys& keys) {
  constexpr size_t kMaxPairs = 10'000;
  constexpr size_t kMaxHints = 3;
  if (keys.missing_keys.size() * keys.unexpected_keys.size() > kMaxPairs) return "";
  std::string text;
  size_t count = 0;
  for (const std::string& name : keys.unexpected_keys) {
    const auto near = base::closest_match(name, keys.missing_keys);
    if (!near || ++count > kMaxHints) continue;
    text += "\n  hint: the checkpoint's \"" + name + "\" may be the model's \"" + *near + "\"";
  }
  return text;
}

}  // namespace

namespace detail {

std::string torch_size(at::IntArrayRef sizes) { return c10::str("torch.Size(", sizes, ")"); }

std::vector<ModuleTensor> tensors_of(const Module& module) {
  std::vector<ModuleTensor> tensors;
  collect(module, "", tensors);
  return tensors;
}

std::string without_wrappers(const std::string& name) {
  static constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                                "_checkpoint_wrapped_module"};
  if (name.find("_") == std::string::npos) return name;
  std::vector<std::string> parts = base::split(name, '.');
  std::erase_if(parts, [](const std::string& part) {
    return std::find(kWrappers.begin(), kWrappers.end(), part) != kWrappers.end();
  });
  return base::join(parts, ".");
}

// Removes the prefix "module." only if more names fit without it, because a module may have a child named "module".
std::vector<std::string> canonical_names(const std::vector<std::string>& names, const Names& own) {
  std::vector<std::string> result;
  for (const std::string& name : names) result.push_back(own.contains(name) ? name : without_wrappers(name));
  const auto length = kWrapperPrefix.size();
  const bool has_prefix = std::all_of(result.begin(), result.end(),
                                      [](const std::string& name) { return name.starts_with(kWrapperPrefix); });
  if (!has_prefix || count_known(result, own, length) <= count_known(result, own, 0)) return result;
  for (std::string& name : result) name = name.substr(length);
  return result;
}

IncompatibleKeys check_fit(const Module& module, const std::vector<NamedSizes>& own,
                           const std::vector<std::string>& given, const SizesOf& sizes_of,
                           const LoadStateDictOptions& options) {
  Names own_names;
  for (const auto& each : own) own_names.insert(each.name);
  const Names given_names(given.begin(), given.end());
  IncompatibleKeys keys;
  collect_unexpected(module, "", given, own_names, keys.unexpected_keys);
  std::vector<std::string> errors;
  for (const auto& [name, sizes] : own) {
    if (!given_names.contains(name)) {
      if (!may_be_missing(name, own_names, options.metadata)) keys.missing_keys.push_back(name);
      continue;
    }
    const auto value = sizes_of(name);
    if (value == sizes || is_old_scalar(value, sizes)) continue;
    errors.push_back(c10::str("size mismatch for ", name, ": copying a param with shape ", torch_size(value),
                              " from checkpoint, the shape in current model is ", torch_size(sizes), "."));
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
              c10::Join("\n\t", errors), options.strict ? hints(keys) : "");
  return keys;
}

}  // namespace detail

std::vector<std::pair<std::string, int64_t>> module_versions(const Module& module) {
  std::vector<std::pair<std::string, int64_t>> versions;
  collect_versions(module, "", versions);
  return versions;
}

c10::IValue state_dict_metadata(const Module& module) {
  auto metadata = detail::empty_dict();
  for (const auto& [name, version] : module_versions(module)) {
    auto own = detail::empty_dict();
    own.insert("version", version);
    metadata.insert(name, own);
  }
  return metadata;
}

}  // namespace cohort::checkpoint
