/// Agreement: whether every rank can do its part of get_state_dict or set_state_dict, and means the same by it, settled before
/// tensors travel, so that no rank waits for one that has refused or does something else.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/agreement.h"
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

class Agreement {
 public:
  /// `function`: the one that the program has called. `outcome`: what is said where it fails, "nothing was set".
  Agreement(std::string function, std::string outcome, const StateDictOptions& options, Participants participants);

  /// Collective over the groups, one after the other. `step` returns what else must be alike on all ranks. Throws on all of them,
  /// c10::Error unless it says otherwise: the first thing that differs, with who has passed what; or else what `step` throws if
  /// it is the same on all ranks; or else the reasons of those that refused. Ranks are named by their number in the job, if there
  /// is one.
  void reach(const std::function<fsdp::Facts()>& step) const;

 private:
  std::string function_;
  std::string outcome_;
  Participants participants_;
  fsdp::Facts options_;
};

/// Those of fully_shard on `model` and on modules in it, each once.
std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model);
/// The ranks that share the model's parameters, as fully_shard has it.
Participants sharers_of(const torch::nn::Module& model);
/// Those, and the ones that have copies, as fully_shard and DistributedDataParallel have them.
Participants holders_of(const torch::nn::Module& model);
/// Adds those that share the state of a ZeroRedundancyOptimizer.
void add_sharers_of(const OptimizerList& optimizers, Participants& participants);

/// What travels when parts are put together, for Agreement::reach.
fsdp::Facts parts_of(const ShardedStateDict& state);

}  // namespace cohort::checkpoint::detail
