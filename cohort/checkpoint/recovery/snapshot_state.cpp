#include "cohort/checkpoint/recovery/snapshot_state.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/rng_state.h"
#include "cohort/checkpoint/state/state_plan.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::checkpoint {
namespace {

constexpr const char* kModelPrefix = "model.";
constexpr const char* kOptimizerPrefix = "optim.";
constexpr const char* kRngKey = "rng.cpu";

void add_all(ShardedStateDict& to, const std::string& prefix, const ShardedStateDict& from) {
  for (const auto& item : from) to.insert(prefix + item.key(), item.value());
}

// Returns "layer1.weight" for "state.layer1.weight.exp_avg".
std::string parameter_of(const std::string& key) {
  if (!key.starts_with("state.")) return key;
  return key.substr(6, key.rfind('.') - 6);
}

// Shards get the specs of the current parameters: ranks that restore a snapshot have the same shards.
ShardedStateDict below_prefix(const ShardedStateDict& kept, const std::string& prefix, const ShardedStateDict& model) {
  ShardedStateDict result;
  for (const auto& item : kept) {
    if (!item.key().starts_with(prefix)) continue;
    const std::string key = item.key().substr(prefix.size());
    const StateValue* own = model.find(parameter_of(key));
    StateValue value = item.value();
    if (own && own->is_shard() && value.is_tensor() && value.tensor.sizes() == own->tensor.sizes())
      value.spec = own->spec;
    result.insert(key, std::move(value));
  }
  return result;
}

}  // namespace

SnapshotState snapshot_state(torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  SnapshotState state;
  if (dynamic_cast<ZeroRedundancyOptimizer*>(&optimizer)) {
    state.is_own = [](const std::string& name) { return name.starts_with("optim.state."); };
  }
  state.get = [&module, &optimizer] {
    // Not with get_state_dict, which is collective: a rank may have stopped keeping snapshots.
    ShardedStateDict values;
    add_all(values, kModelPrefix, detail::own_model_state(module, {}));
    add_all(values, kOptimizerPrefix, detail::own_optimizer_state(module, optimizer, {}));
    values.insert(kRngKey, StateValue(rng_state()));
    return values;
  };
  state.set = [&module, &optimizer](const ShardedStateDict& kept) {
    const ShardedStateDict model = detail::own_model_state(module, {});
    set_state_dict(
        module, optimizer,
        {.model = below_prefix(kept, kModelPrefix, model), .optimizer = below_prefix(kept, kOptimizerPrefix, model)});
    set_rng_state(kept[kRngKey].tensor.clone());
  };
  return state;
}

}  // namespace cohort::checkpoint
