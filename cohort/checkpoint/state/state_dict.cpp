#include "cohort/checkpoint/state/state_dict.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/state/module_names.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::checkpoint {
namespace {

bool is_let_go(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.layout() == at::kStrided && !tensor.is_meta() && tensor.storage().nbytes() == 0;
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& [name, tensor, is_parameter] : detail::tensors_of(module)) {
    TORCH_CHECK(!is_let_go(tensor), "[cohort] state_dict: parameter \"", name,
                "\" is not in memory: fully_shard has freed it\n"
                "  hint: call get_model_state_dict(), which returns this rank's shard, or, with full_state_dict, the "
                "full tensor");
    state.insert(name, tensor.detach());
  }
  return state;
}

IncompatibleKeys load_state_dict(torch::nn::Module& module, const StateDict& given, LoadStateDictOptions options) {
  const auto own = detail::tensors_of(module);
  std::vector<detail::NamedSizes> sizes;
  detail::Names names;
  for (const auto& each : own) {
    TORCH_CHECK_VALUE(!parallel::is_sharded(each.tensor), "[cohort] load_state_dict: parameter \"", each.name,
                      "\" is one rank's shard of a tensor, of fully_shard or of a tensor-parallel layer\n"
                      "  hint: call set_model_state_dict() with full_state_dict, which gives each rank its shard, or a "
                      "tensor-parallel layer's load_full()");
    sizes.push_back({each.name, each.tensor.sizes().vec()});
    names.insert(each.name);
  }
  StateDict state;
  const auto given_names = detail::canonical_names(given.keys(), names);
  for (size_t i = 0; i < given_names.size(); ++i) {
    if (!state.contains(given_names[i])) state.insert(given_names[i], given[i].value());
  }
  const auto sizes_of = [&](const std::string& name) { return state[name].sizes().vec(); };
  auto keys = detail::check_fit(module, sizes, state.keys(), sizes_of, options);
  const c10::AutoGradMode no_grad(false);
  for (const auto& each : own) {
    const at::Tensor* value = state.find(each.name);
    if (!value) continue;
    const bool is_old = detail::is_old_scalar(value->sizes(), each.tensor.sizes());
    each.tensor.detach().copy_(is_old ? (*value)[0] : *value);
  }
  return keys;
}

}  // namespace cohort::checkpoint
