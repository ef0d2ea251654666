#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/model_shards.h"
#include "cohort/checkpoint/state/participants.h"
#include "cohort/checkpoint/state/state_plan.h"

namespace cohort::checkpoint {
namespace {

using detail::Incoming;
using torch::nn::Module;

// Returns the ranks that have shards or copies of the same parameters, or that wait for each other during the call.
detail::Participants participants_of(const Module& model, const OptimizerList* optimizers,
                                     const StateDictOptions& options) {
  auto result = detail::holders_of(model);
  if (optimizers) detail::add_sharers_of(*optimizers, result);
  if (options.broadcast_from_rank0) result.by_options = detail::group_of(options);
  return result;
}

void check_options(const char* function, const StateDictOptions& options) {
  TORCH_CHECK_VALUE(options.full_state_dict || !options.broadcast_from_rank0,
                    "full_state_dict must be True when broadcast_from_rank0 is True.");
  TORCH_CHECK_VALUE(!options.broadcast_from_rank0 || detail::group_of(options), "[cohort] ", function,
                    ": broadcast_from_rank0 needs a process group\n  hint: call init_process_group() before");
}

void check_has_no_shards(const ShardedStateDict& state) {
  for (const auto& item : state) {
    TORCH_CHECK_VALUE(!item.value().is_shard(), "[cohort] broadcast_from_rank0 needs full tensors on rank 0, but \"",
                      item.key(), "\" is a shard there\n  hint: get it with full_state_dict");
  }
}

ShardedStateDict localized(const Incoming& incoming) {
  ShardedStateDict result;
  for (const auto& item : incoming.state) {
    const auto found = incoming.wanted.find(item.key());
    const bool is_wanted = found != incoming.wanted.end();
    result.insert(item.key(), is_wanted ? detail::localized(item.key(), item.value(), found->second) : item.value());
  }
  return result;
}

// Sets one or both states. If values travel, ranks agree twice: before, and when each rank knows what to do with them.
class StateSetter {
 public:
  StateSetter(const char* function, const Module& model, const OptimizerList* optimizers,
              const StateDictOptions& options)
      : function_(function), model_(model), optimizers_(optimizers), options_(options) {}

  IncompatibleKeys set(const ShardedStateDict* model_state, const ShardedStateDict* optimizer_state) {
    const detail::StateCall call{function_, "nothing was set", options_,
                                 participants_of(model_, optimizers_, options_)};
    detail::agree(call, [&] {
      prepare(model_state, optimizer_state);
      if (!options_.broadcast_from_rank0) {
        for (auto& each : incoming_) each.state = localized(each);
        plan(model_state, optimizer_state);
      }
      return comm::Facts();
    });
    if (options_.broadcast_from_rank0) {
      const auto group = detail::group_of(options_);
      for (auto& each : incoming_) {
        each.state = detail::broadcast_state(each.state, each.wanted, parts_->device(), group);
      }
      detail::agree(call, [&] {
        plan(model_state, optimizer_state);
        return comm::Facts();
      });
    }
    if (model_state) detail::commit_model(model_, model_plan_);
    for (auto& each : optimizer_plans_) each.commit();
    return model_plan_.keys;
  }

 private:
  void prepare(const ShardedStateDict* model_state, const ShardedStateDict* optimizer_state) {
    check_options(function_, options_);
    parts_.emplace(model_);
    if (model_state) incoming_.push_back(detail::incoming_model(*parts_, *model_state));
    if (optimizer_state) incoming_.push_back(detail::incoming_optimizers(*parts_, *optimizers_, *optimizer_state));
    if (!options_.broadcast_from_rank0 || detail::group_of(options_)->getRank() != 0) return;
    for (const auto& each : incoming_) check_has_no_shards(each.state);
  }

  void plan(const ShardedStateDict* model_state, const ShardedStateDict* optimizer_state) {
    if (model_state) model_plan_ = detail::plan_model(model_, *parts_, incoming_.front().state, options_);
    if (optimizer_state) {
      optimizer_plans_ = detail::plan_optimizers(*parts_, *optimizers_, incoming_.back().state, options_);
    }
  }

  const char* function_;
  const Module& model_;
  const OptimizerList* optimizers_;
  const StateDictOptions& options_;
  std::optional<detail::ModelShards> parts_;
  std::vector<Incoming> incoming_;  // the model's, then the optimizers' values
  detail::ModelPlan model_plan_;
  std::vector<detail::OptimizerPlan> optimizer_plans_;
};

}  // namespace

IncompatibleKeys set_model_state_dict(Module& model, const ShardedStateDict& state, const StateDictOptions& options) {
  return StateSetter("set_model_state_dict", model, nullptr, options).set(&state, nullptr);
}

void set_optimizer_state_dict(Module& model, const OptimizerList& optimizers, const ShardedStateDict& state,
                              const StateDictOptions& options) {
  StateSetter("set_optimizer_state_dict", model, &optimizers, options).set(nullptr, &state);
}

IncompatibleKeys set_state_dict(Module& model, const OptimizerList& optimizers, const ModelAndOptimizerState& state,
                                const StateDictOptions& options) {
  return StateSetter("set_state_dict", model, &optimizers, options).set(&state.model, &state.optimizer);
}

}  // namespace cohort::checkpoint
