#include "cohort/checkpoint/state/participants.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/state/model_shards.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/module/purpose.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::checkpoint::detail {
namespace {

std::string members_in_words(const Group& group) {
  return "that of " + base::ranks_in_words(comm::numbers_in_job(group));
}

std::string in_words(bool value) { return value ? "true" : "false"; }

}  // namespace

void Participants::add(const Group& group) {
  if (group && std::find(always.begin(), always.end(), group) == always.end()) always.push_back(group);
}

void agree(const StateCall& call, const std::function<comm::Facts()>& step) {
  const auto& [function, outcome, options, participants] = call;
  const auto& [always, by_options] = participants;
  comm::Claim claim{.function = function,
                    .outcome = outcome,
                    .hint = "call it on all ranks that share the model, with the same model and the same options",
                    .facts = {{"full_state_dict", in_words(options.full_state_dict)},
                              {"broadcast_from_rank0", in_words(options.broadcast_from_rank0)},
                              {"ignore_frozen_params", in_words(options.ignore_frozen_params)},
                              {"process_group", by_options ? members_in_words(by_options) : "not used"}}};
  try {
    for (auto& fact : step()) claim.facts.push_back(std::move(fact));
  } catch (...) {
    claim.failure = std::current_exception();
  }
  const bool is_met = std::find(always.begin(), always.end(), by_options) != always.end();
  const comm::CalledFor purpose(parallel::kStateExchange);
  comm::agree(claim, always, is_met ? Group() : by_options);
}

std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model) {
  std::vector<fsdp::Sharding*> result;
  const auto add = [&](const torch::nn::Module& module) {
    const auto* const sharded = dynamic_cast<const fsdp::ShardedModule*>(&module);
    if (!sharded) return;
    for (const auto& sharding : sharded->shardings()) {
      if (std::find(result.begin(), result.end(), sharding.get()) == result.end()) result.push_back(sharding.get());
    }
  };
  add(model);
  for (const auto& module : model.modules(/*include_self=*/false)) add(*module);
  return result;
}

Participants sharers_of(const torch::nn::Module& model) {
  Participants result;
  for (const auto* const sharding : shardings_of(model)) result.add(sharding->process_group());
  for (const auto& list : {model.parameters(), model.buffers()}) {
    for (const auto& tensor : list) {
      const auto spec = parallel::noted_shard_spec(tensor);
      for (const auto& group : spec ? spec->mesh().groups() : std::vector<Group>()) result.add(group);
    }
  }
  return result;
}

Participants holders_of(const torch::nn::Module& model) {
  auto result = sharers_of(model);
  for (const auto* const sharding : shardings_of(model)) result.add(sharding->replica_group());
  const auto* const replicated = dynamic_cast<const ddp::Replicated*>(&model);
  if (replicated) result.add(replicated->group_of_replicas());
  return result;
}

void add_sharers_of(const OptimizerList& optimizers, Participants& participants) {
  for (auto* const optimizer : optimizers) {
    const auto* const zero = dynamic_cast<const ZeroRedundancyOptimizer*>(optimizer);
    if (zero) participants.add(zero->join_process_group());
  }
}

comm::Facts shards_of(const ShardedStateDict& state) {
  comm::Facts facts;
  for (const auto& item : state) {
    if (!item.value().is_shard()) continue;
    facts.push_back({fmt::format("part {} of the state", facts.size() + 1),
                     fmt::format("\"{}\" of {}, {}", item.key(), torch_size(item.value().spec->shape()),
                                 c10::toString(item.value().tensor.scalar_type()))});
  }
  return facts;
}

}  // namespace cohort::checkpoint::detail
