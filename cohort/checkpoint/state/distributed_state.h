/// get_state_dict and set_state_dict: states of models and optimizers whatever the strategy, by one set of names, for checkpoints
/// that any number of ranks and any strategy can go on from (torch/distributed/checkpoint/state_dict.py).
///
///     ShardedStateDict state = get_model_state_dict(*model);               // of DDP, fully_shard, or a plain module
///     ShardedStateDict optimizer_state = get_optimizer_state_dict(*model, optimizer);
///     ...                                                                  // sharded checkpoints write and fill them
///     set_model_state_dict(*model, state);
///     set_optimizer_state_dict(*model, optimizer, optimizer_state);
///
/// Keys are "layer1.weight"; "state.layer1.weight.exp_avg" and "param_groups.layer1.weight.lr", flat as with Python's
/// flatten_optimizer_state_dict=True. What fully_shard has sharded is this rank's part with its ShardSpec (of a mesh of
/// replicas: [Replicate, Shard]), and so is a DTensor, and the weight of a layer that ranks compute together
/// (parallel_layers.h); the state of a ZeroRedundancyOptimizer is there on the parameter's owner; all else is whole on every
/// rank. Tensors share memory with the model and the optimizer, so that what fills them fills those.
///
/// Of a parameter that other stages of a pipeline have, too (tied_names.h), set_... takes what stands under another of its names
/// where there is nothing under its own.
///
/// Where a parameter has no state yet, as before the first step, its part of the dict is what such a state begins as; the
/// optimizer stays as it is. (Python makes a step with zero gradients.)
///
/// Collective over the ranks that share the model's parameters (fully_shard, DTensors, such layers) or the optimizer's state
/// (ZeroRedundancyOptimizer); set_... also over those that have copies (replicas of fully_shard, DistributedDataParallel) and,
/// with `broadcast_from_rank0`, over the process group, as is get_optimizer_state_dict of a ZeroRedundancyOptimizer with
/// `full_state_dict`. Of a plain module, which tells nobody whose copy it is, all else is local: every rank has to pass
/// `broadcast_from_rank0`, or none.
/// These ranks agree before tensors travel and before anything is set. Throw c10::ValueError and c10::Error with the key and the
/// reason; if only some of them refuse, or if they have called different functions or passed other options or models, all throw
/// c10::Error, which says who has which reason or has passed what. Nothing has been set then, and nobody waits.
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

/// Names and defaults as Python's.
struct StateDictOptions {
  /// Get: whole tensors instead of parts, on every rank. Set: the values are whole; each rank takes its part of them.
  bool full_state_dict = false;
  /// Get: tensors are copied to the CPU; with full_state_dict rank 0 alone gets them, and the others get nothing.
  bool cpu_offload = false;
  /// Parameters that require no gradient are left out, and not asked for.
  bool ignore_frozen_params = false;
  /// False: the names of get_model_state_dict are those below `submodules`.
  bool keep_submodule_prefixes = true;
  /// False: what the dict lacks stays as it is, and what else it has is ignored.
  bool strict = true;
  /// Set: the values count on rank 0 alone, and travel one after the other. Needs full_state_dict.
  bool broadcast_from_rank0 = false;
  /// Without effect: dicts are always flat. nested_optimizer_state() gives the other form.
  bool flatten_optimizer_state_dict = true;

  /// get_model_state_dict: these alone; empty: all.
  std::vector<const torch::nn::Module*> submodules = {};
  /// Which ranks are meant; null: those of the default group.
  Group process_group = {};
};

/// One optimizer, or several that share the model's parameters out among them.
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

/// Copies into the model's own tensors. Keys and errors as load_state_dict's.
COHORT_API IncompatibleKeys set_model_state_dict(torch::nn::Module& model, const ShardedStateDict& state,
                                                 const StateDictOptions& options = {});
/// Keys of parameters that the optimizers do not have are ignored, so that several may share one dict.
COHORT_API void set_optimizer_state_dict(torch::nn::Module& model, const OptimizerList& optimizers,
                                         const ShardedStateDict& state, const StateDictOptions& options = {});
/// Both or, if it throws, neither.
COHORT_API IncompatibleKeys set_state_dict(torch::nn::Module& model, const OptimizerList& optimizers,
                                           const ModelAndOptimizerState& state, const StateDictOptions& options = {});

}  // namespace cohort::checkpoint
