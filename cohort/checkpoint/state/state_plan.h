/// Plans of get_state_dict and set_state_dict, made in full before any of it is done.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/model_shards.h"

namespace cohort::checkpoint::detail {

/// Return the values as this rank holds them; not collective.
ShardedStateDict own_model_state(const torch::nn::Module& model, const StateDictOptions& options);
ShardedStateDict own_optimizer_state(const torch::nn::Module& model, const OptimizerList& optimizers,
                                     const StateDictOptions& options);

inline constexpr const char* kNoState = "no rank has got a state";
/// Do get_model_state_dict and get_optimizer_state_dict, under the name of the function that the program has called.
ShardedStateDict model_state_for(const char* function, const torch::nn::Module& model, const StateDictOptions& options);
ShardedStateDict optimizer_state_for(const char* function, const torch::nn::Module& model,
                                     const OptimizerList& optimizers, const StateDictOptions& options);

/// The values given to this rank, under the model's names, and what it needs of them.
struct Incoming {
  ShardedStateDict state;
  WantedValues wanted = {};
};
Incoming incoming_model(const ModelShards& parts, const ShardedStateDict& given);
Incoming incoming_optimizers(const ModelShards& parts, const OptimizerList& optimizers, const ShardedStateDict& given);

struct ModelPlan {
  IncompatibleKeys keys;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies = {};  ///< (to, from)
};
/// `state`: the values as this rank holds them.
ModelPlan plan_model(const torch::nn::Module& model, const ModelShards& parts, const ShardedStateDict& state,
                     const StateDictOptions& options);
void commit_model(const torch::nn::Module& model, const ModelPlan& plan);

struct OptimizerPlan {
  torch::optim::Optimizer* shown;  ///< the optimizer whose options the program sees
  torch::optim::Optimizer* local;  ///< the optimizer whose state this rank has
  LoadedOptimizer loaded = {};

  void commit();
};
std::vector<OptimizerPlan> plan_optimizers(const ModelShards& parts, const OptimizerList& optimizers,
                                           const ShardedStateDict& state, const StateDictOptions& options);

/// Inserts a value. A list of tensors becomes an entry for each: "state.weight.old_dirs.0"; an empty list becomes no entry.
void insert_value(ShardedStateDict& state, const std::string& key, const c10::IValue& value);

/// A flat key of an optimizer's state dict: "state", "layer.weight", "exp_avg".
struct OptimizerKey {
  std::string section;
  std::string name;
  std::string field;
  std::string text() const { return section + "." + name + "." + field; }
};
/// Absent if the key belongs to no parameter among `names`, even without what wrappers have added.
std::optional<OptimizerKey> split_key(const std::string& key, const Names& names);

}  // namespace cohort::checkpoint::detail
