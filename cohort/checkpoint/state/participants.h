/// Participants: the ranks that must agree on a call of get_state_dict or set_state_dict before tensors travel.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/sharding.h"

namespace cohort::checkpoint::detail {

/// The groups that must agree. Null groups are skipped.
struct Participants {
  /// Groups of the model and the optimizers, whatever the options.
  std::vector<Group> always = {};
  /// The group over which the options make tensors travel. Entered last, and only if all of `always` have the same options.
  Group by_options = {};

  /// Adds `group` to `always`, once.
  void add(const Group& group);
};

/// A call of `function` by all participants, and how errors describe the result: "nothing was set".
struct StateCall {
  const char* function;
  const char* outcome;
  const StateDictOptions& options;
  Participants participants;
};

/// Runs `step`, which returns further facts that must be equal on all ranks. Collective over the participants' groups. Throws on
/// all of them what comm::agree throws: if options or facts differ, and if `step` throws on some of them.
void agree(const StateCall& call, const std::function<comm::Facts()>& step);

/// Returns the Shardings of fully_shard on `model` and on modules in it, each once.
std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model);
/// Returns the ranks that share the model's parameters by fully_shard.
Participants sharers_of(const torch::nn::Module& model);
/// Returns these, and the ranks that have copies by fully_shard and DistributedDataParallel.
Participants holders_of(const torch::nn::Module& model);
/// Adds the ranks that share the state of a ZeroRedundancyOptimizer.
void add_sharers_of(const OptimizerList& optimizers, Participants& participants);

/// Returns the shards that travel when full tensors are gathered, for agree().
comm::Facts shards_of(const ShardedStateDict& state);

}  // namespace cohort::checkpoint::detail
