#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/model_shards.h"
#include "cohort/checkpoint/state/participants.h"
#include "cohort/checkpoint/state/state_plan.h"
#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::checkpoint {
namespace {

using torch::nn::Module;

// Returns a prefix such as "layers.0." for each submodule.
std::vector<std::string> prefixes_of(const Module& model, const std::vector<const Module*>& submodules) {
  std::vector<std::string> prefixes;
  for (const auto* const wanted : submodules) {
    const auto all = model.named_modules("", /*include_self=*/false);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& item) { return item.value().get() == wanted; });
    TORCH_CHECK_VALUE(found != all.end(), "[cohort] get_model_state_dict: one of `submodules`, a ", wanted->name(),
                      ", is not in the model");
    prefixes.push_back(found->key() + ".");
  }
  return prefixes;
}

ShardedStateDict below(const ShardedStateDict& state, const std::vector<std::string>& prefixes, bool keeps_prefixes) {
  ShardedStateDict result;
  for (const auto& item : state) {
    for (const std::string& prefix : prefixes) {
      if (!item.key().starts_with(prefix)) continue;
      const auto key = keeps_prefixes ? item.key() : item.key().substr(prefix.size());
      TORCH_CHECK_VALUE(!result.contains(key), "[cohort] get_model_state_dict: two submodules have \"", key,
                        "\"\n  hint: ask for one submodule, or keep the prefixes");
      result.insert(key, item.value());
    }
  }
  return result;
}

ShardedStateDict with_canonical_names(const ShardedStateDict& state, const detail::ModelShards& parts) {
  const auto names = detail::canonical_names(state.keys(), parts.names());
  ShardedStateDict result;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!result.contains(names[i])) result.insert(names[i], state[i].value());
  }
  for (const auto& held : parts.tensors()) {
    for (const std::string& name : held.other_names) {
      const StateValue* const value = result.contains(held.name) ? nullptr : result.find(name);
      if (value) result.insert(held.name, StateValue(*value));
    }
  }
  return result;
}

// Waits until passes have copied the shards on the CPU that they will read, before these change.
void wait_for_passes(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

namespace detail {

ShardedStateDict own_model_state(const Module& model, const StateDictOptions& options) {
  const ModelShards parts(model);
  ShardedStateDict state;
  for (const auto& held : parts.tensors()) {
    if (options.ignore_frozen_params && held.is_frozen) continue;
    const auto tensor = held.tensor.detach();
    StateValue value(tensor);
    value.spec = held.spec;
    if (!held.other_names.empty()) value.tied = {held.name, held.other_names};
    state.insert(held.name, std::move(value));
  }
  if (options.submodules.empty()) return state;
  return below(state, prefixes_of(model, options.submodules), options.keep_submodule_prefixes);
}

ShardedStateDict model_state_for(const char* function, const Module& model, const StateDictOptions& options) {
  ShardedStateDict state;
  agree({function, kNoState, options, sharers_of(model)}, [&] {
    state = own_model_state(model, options);
    return options.full_state_dict ? shards_of(state) : comm::Facts();
  });
  return gathered(std::move(state), options);
}

Incoming incoming_model(const ModelShards& parts, const ShardedStateDict& given) {
  Incoming incoming{with_canonical_names(given, parts)};
  for (const auto& held : parts.tensors()) incoming.wanted.emplace(held.name, Wanted{held.spec, held.sizes});
  return incoming;
}

ModelPlan plan_model(const Module& model, const ModelShards& parts, const ShardedStateDict& state,
                     const StateDictOptions& options) {
  std::vector<NamedSizes> own;
  for (const auto& held : parts.tensors()) {
    const auto* const value = state.find(held.name);
    TORCH_CHECK_VALUE(!value || value->is_tensor(), "[cohort] set_model_state_dict: \"", held.name,
                      "\" of the state dict is ", value ? text_of(value->value) : "", ", not a tensor");
    if (value || !options.ignore_frozen_params || !held.is_frozen) own.push_back({held.name, held.sizes});
  }
  const auto sizes_of = [&](const std::string& name) {
    const auto& value = state[name];
    return value.is_shard() ? value.spec->shape() : value.tensor.sizes().vec();
  };
  ModelPlan plan{check_fit(model, own, state.keys(), sizes_of, {.strict = options.strict})};
  for (const auto& held : parts.tensors()) {
    const auto* const value = state.find(held.name);
    if (!value) continue;
    const auto to = held.tensor.detach();
    const bool is_old = !value->is_shard() && is_old_scalar(value->tensor.sizes(), held.sizes);
    plan.copies.emplace_back(to, is_old ? value->tensor[0] : value->tensor);
  }
  return plan;
}

void commit_model(const Module& model, const ModelPlan& plan) {
  const auto shardings = shardings_of(model);
  const bool are_on_cpu =
      std::any_of(plan.copies.begin(), plan.copies.end(), [](const auto& copy) { return copy.first.is_cpu(); });
  for (auto* const sharding : shardings) {
    sharding->reshard();  // full parameters that are still gathered would be out of date
    if (are_on_cpu) wait_for_passes(sharding->device());
  }
  {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [to, from] : plan.copies) {
      const bool is_same = from.is_alias_of(to) && comm::starts_like(from, to) && from.strides() == to.strides();
      if (!is_same) to.copy_(from);
    }
  }
  for (auto* const sharding : shardings) {
    if (!sharding->follows_passes())
      sharding->unshard();  // if the parameters have one memory, all ranks see what all have written
  }
}

}  // namespace detail

ShardedStateDict get_model_state_dict(const Module& model, const StateDictOptions& options) {
  return detail::model_state_for("get_model_state_dict", model, options);
}

ModelAndOptimizerState get_state_dict(const Module& model, const OptimizerList& optimizers,
                                      const StateDictOptions& options) {
  return {detail::model_state_for("get_state_dict", model, options),
          detail::optimizer_state_for("get_state_dict", model, optimizers, options)};
}

}  // namespace cohort::checkpoint
