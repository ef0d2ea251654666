/// Participants: the ranks that have to agree on a call of get_state_dict or set_state_dict before tensors travel.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/sharding.h"

namespace cohort::checkpoint::detail {

/// Who has to agree. Null groups do not count.
struct Participants {
  /// Those of the model and the optimizers, whatever the options say.
  std::vector<Group> always = {};
  /// Where the options make tensors travel. Entered last, and only if all of `always` have the same options.
  Group by_options = {};

  /// Adds `group` to `always`, once.
  void add(const Group& group);
};

/// A call of `function` by all participants, and what errors say of it: "nothing was set".
struct StateCall {
  const char* function;
  const char* outcome;
  const StateDictOptions& options;
  Participants participants;
};

/// Collective over the participants' groups. `step` returns what else must be alike on all ranks. Throws on all of them what
/// comm::agree throws: where options or facts differ, and where `step` throws on some of them.
void agree(const StateCall& call, const std::function<comm::Facts()>& step);

/// Those of fully_shard on `model` and on modules in it, each once.
std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model);
/// The ranks that share the model's parameters, as fully_shard has it.
Participants sharers_of(const torch::nn::Module& model);
/// Those, and the ones that have copies, as fully_shard and DistributedDataParallel have them.
Participants holders_of(const torch::nn::Module& model);
/// Adds those that share the state of a ZeroRedundancyOptimizer.
void add_sharers_of(const OptimizerList& optimizers, Participants& participants);

/// What travels when parts are put together, for agree().
comm::Facts parts_of(const ShardedStateDict& state);

}  // namespace cohort::checkpoint::detail
