/// get_state_dict and set_state_dict: states of models and optimizers under the same names for every strategy, for checkpoints
/// from which any number of ranks and any strategy can go on (torch/distributed/checkpoint/state_dict.py).
///
///     ShardedStateDict state = get_model_state_dict(*model);               // of DDP, fully_shard, or a plain module
///     ShardedStateDict optimizer_state = get_optimizer_state_dict(*model, optimizer);
///     ...                                                                  // sharded checkpoints write and fill them
///     set_model_state_dict(*model, state);
///     set_optimizer_state_dict(*model, optimizer, optimizer_state);
///
/// Keys are "layer1.weight"; "state.layer1.weight.exp_avg" and "param_groups.layer1.weight.lr", flat as with Python's
/// flatten_optimizer_state_dict=True. A parameter that fully_shard has sharded is this rank's shard with its ShardSpec (of a mesh
/// of replicas: [Replicate, Shard]); so is a DTensor, and the weight of a layer that ranks compute together (parallel_layers.h).
/// The state of a ZeroRedundancyOptimizer is on the parameter's owner. All else is a full tensor on every rank. Tensors share
/// memory with the model and the optimizer, so code that fills the former fills the latter.
///
/// For a parameter that other stages of a pipeline also have (tied_names.h), set_... takes the value under one of its other names
/// if its own has none.
///
/// If a parameter has no state yet, as before the first step, the dict has the initial state; the optimizer does not change.
/// (Python makes a step with zero gradients.)
///
/// Collective over the ranks that share the model's parameters (fully_shard, DTensors, such layers) or the optimizer's state
/// (ZeroRedundancyOptimizer). set_... is also collective over the ranks that have copies (replicas of fully_shard,
/// DistributedDataParallel) and, with `broadcast_from_rank0`, over the process group, as is get_optimizer_state_dict of a
/// ZeroRedundancyOptimizer with `full_state_dict`. For a plain module, which does not say which ranks have copies, all else is
/// local: either every rank passes `broadcast_from_rank0`, or none.
/// These ranks agree before tensors travel and before anything is set. Throw c10::ValueError and c10::Error with the key and the
/// reason. If only some of them refuse, or if they have called different functions or passed other options or models, all throw
/// c10::Error, which names each rank's reason or arguments. Then nothing has been set, and no rank waits.
/// Thread-safety: as collectives.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <initializer_list>
#include <vector>

#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/checkpoint/state/state_value.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Options with Python's names and defaults.
struct StateDictOptions {
  /// Get: return full tensors instead of shards, on every rank. Set: the values are full tensors; each rank takes its shards.
  bool full_state_dict = false;
  /// Get: copy tensors to the CPU; with full_state_dict only rank 0 gets them, and the others get an empty dict.
  bool cpu_offload = false;
  /// Leave out parameters that require no gradient, and do not ask for them.
  bool ignore_frozen_params = false;
  /// If false, get_model_state_dict returns the names below `submodules`.
  bool keep_submodule_prefixes = true;
  /// If false, values that the dict lacks do not change, and its other keys are ignored.
  bool strict = true;
  /// Set: only rank 0's values count; they are broadcast one after the other. Needs full_state_dict.
  bool broadcast_from_rank0 = false;
  /// Has no effect: dicts are always flat. nested_optimizer_state() returns the other form.
  bool flatten_optimizer_state_dict = true;

  /// get_model_state_dict: only these submodules. If empty, all.
  std::vector<const torch::nn::Module*> submodules = {};
  /// The ranks that take part. If null, those of the default group.
  Group process_group = {};
};

/// One optimizer, or several that each have some of the model's parameters.
class OptimizerList {
 public:
  // Implicit on purpose: get_optimizer_state_dict(model, optimizer).
  OptimizerList(torch::optim::Optimizer& optimizer) : optimizers_({&optimizer}) {}
  OptimizerList(std::vector<torch::optim::Optimizer*> optimizers) : optimizers_(std::move(optimizers)) {}
  OptimizerList(std::initializer_list<torch::optim::Optimizer*> optimizers) : optimizers_(optimizers) {}
  auto begin() const { return optimizers_.begin(); }
  auto end() const { return optimizers_.end(); }

 private:
  std::vector<torch::optim::Optimizer*> optimizers_;
};

COHORT_API ShardedStateDict get_model_state_dict(const torch::nn::Module& model, const StateDictOptions& options = {});
COHORT_API ShardedStateDict get_optimizer_state_dict(const torch::nn::Module& model, const OptimizerList& optimizers,
                                                     const StateDictOptions& options = {});

struct ModelAndOptimizerState {
  ShardedStateDict model;
  ShardedStateDict optimizer;
};
COHORT_API ModelAndOptimizerState get_state_dict(const torch::nn::Module& model, const OptimizerList& optimizers,
                                                 const StateDictOptions& options = {});

/// Copies into the model's own tensors. Keys and errors as for load_state_dict.
COHORT_API IncompatibleKeys set_model_state_dict(torch::nn::Module& model, const ShardedStateDict& state,
                                                 const StateDictOptions& options = {});
/// Ignores keys of parameters that the optimizers do not have, so that several optimizers can use one dict.
COHORT_API void set_optimizer_state_dict(torch::nn::Module& model, const OptimizerList& optimizers,
                                         const ShardedStateDict& state, const StateDictOptions& options = {});
/// Sets both states or, if it throws, none.
COHORT_API IncompatibleKeys set_state_dict(torch::nn::Module& model, const OptimizerList& optimizers,
                                           const ModelAndOptimizerState& state, const StateDictOptions& options = {});

}  // namespace cohort::checkpoint
