// get_state_dict and set_state_dict where one rank of several refuses: all of them throw, with its reason, and nobody waits.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>

#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
using test::error_of;
using test::require_equal;
using torch::optim::AdamW;

constexpr const char* kMissingBias =
    "Error(s) in loading state_dict for FullySharded:\n  \tMissing key(s) in state_dict: \"bias\". ";

constexpr const char* kCallAlike =
    "\n  hint: call it on all ranks that share the model, with the same model and the same options";

// Whoever waits for a rank that has refused gets another error than that rank's, after the timeout.
void on_ranks_of_refusal(const std::function<void(int, const Group&)>& fn) { test::run_rank_threads(3, fn); }

nn::Linear linear_of(double value) {
  nn::Linear module(4, 3);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module->parameters()) parameter.fill_(value);
  return module;
}

struct ShardedLinear {
  ShardedLinear(const Group& group, bool one_memory)
      : model(fully_shard(linear_of(1), {.process_group = group, .one_memory = one_memory})),
        optimizer(model->parameters(), 0.5) {}
  bool is_unchanged() {
    const auto parameters = model->parameters();
    return std::all_of(parameters.begin(), parameters.end(),
                       [](const auto& each) { return each.eq(1).all().template item<bool>(); }) &&
           optimizer.state().empty() && optimizer.param_groups()[0].options().get_lr() == 0.5;
  }
  FullySharded<nn::LinearImpl> model;
  AdamW optimizer;
};

// Of one process, after a step.
ModelAndOptimizerState state_of_one() {
  auto module = linear_of(2);
  AdamW optimizer(module->parameters(), 0.25);
  module->forward(torch::ones({2, 4})).sum().backward();
  optimizer.step();
  return get_state_dict(*module, optimizer);
}

ModelAndOptimizerState without(ModelAndOptimizerState state, const std::string& key) {
  for (auto* const each : {&state.model, &state.optimizer}) {
    if (each->contains(key)) each->erase(key);
  }
  return state;
}

StateDictOptions whole_in(const Group& group) { return {.full_state_dict = true, .process_group = group}; }
StateDictOptions from_rank_0(const Group& group) {
  return {.full_state_dict = true, .broadcast_from_rank0 = true, .process_group = group};
}

TEST(RefusalOfOneRank, OfFullValues) {
  const auto good = state_of_one();
  for (const bool one_memory : {true, false}) {
    on_ranks_of_refusal([&](int rank, const Group& group) {
      ShardedLinear own(group, one_memory);
      const auto no_bias = rank == 1 ? without(good, "bias") : good;
      require_equal(error_of([&] { set_model_state_dict(*own.model, no_bias.model, whole_in(group)); }),
                    std::string("[cohort] set_model_state_dict: nothing was set\n  rank 1: ") + kMissingBias);
      auto wide = good;
      if (rank == 1) wide.model["bias"] = StateValue(torch::ones({4}));
      require_equal(
          error_of([&] { set_state_dict(*own.model, own.optimizer, wide, whole_in(group)); }),
          "[cohort] set_state_dict: nothing was set\n  rank 1: Error(s) in loading state_dict for FullySharded:\n"
          "  \tsize mismatch for bias: copying a param with shape torch.Size([4]) from checkpoint, the shape in "
          "current model is torch.Size([3]).");
      const auto no_eps = rank == 1 ? without(good, "param_groups.bias.eps") : good;
      const std::string reason =
          ": nothing was set\n  rank 1: set_optimizer_state_dict: the state does not fit the optimizer\n"
          "  \tMissing key(s): \"param_groups.bias.eps\".\n"
          "    hint: set StateDictOptions::strict = false to keep what is missing";
      require_equal(
          error_of([&] { set_optimizer_state_dict(*own.model, own.optimizer, no_eps.optimizer, whole_in(group)); }),
          "[cohort] set_optimizer_state_dict" + reason);
      require_equal(error_of([&] { set_state_dict(*own.model, own.optimizer, no_eps, whole_in(group)); }),
                    "[cohort] set_state_dict" + reason);
      REQUIRE(own.is_unchanged());
      set_state_dict(*own.model, own.optimizer, good, whole_in(group));
      REQUIRE(!own.is_unchanged());
    });
  }
}

TEST(RefusalOfOneRank, OfParts) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/true);
    auto state = get_model_state_dict(*own.model);
    for (auto& item : state) item.value().tensor = item.value().tensor + 1;
    if (rank == 1) state.erase("bias");
    require_equal(error_of([&] { set_model_state_dict(*own.model, state); }),
                  std::string("[cohort] set_model_state_dict: nothing was set\n  rank 1: ") + kMissingBias);
    REQUIRE(own.is_unchanged());
  });
}

TEST(RefusalOfOneRank, OfWhatRankZeroSends) {
  const auto good = state_of_one();
  on_ranks_of_refusal([&](int rank, const Group& group) {
    nn::Linear module(4, rank == 1 ? 5 : 3);
    AdamW optimizer(module->parameters());
    torch::optim::SGD other(module->parameters(), 0.5);
    const auto sent = rank == 0 ? good : ModelAndOptimizerState();
    const std::string reason =
        ": nothing was set\n  rank 1: Error(s) in loading state_dict for Linear:\n"
        "  \tsize mismatch for weight: copying a param with shape torch.Size([3, 4]) from checkpoint, the shape in "
        "current "
        "model is torch.Size([5, 4]).\n"
        "  \tsize mismatch for bias: copying a param with shape torch.Size([3]) from checkpoint, the shape in current "
        "model is torch.Size([5]).";
    require_equal(error_of([&] { set_model_state_dict(*module, sent.model, from_rank_0(group)); }),
                  "[cohort] set_model_state_dict" + reason);
    require_equal(error_of([&] { set_state_dict(*module, optimizer, sent, from_rank_0(group)); }),
                  "[cohort] set_state_dict" + reason);
    const OptimizerList optimizers = rank == 1 ? OptimizerList(other) : OptimizerList(optimizer);
    const auto text =
        error_of([&] { set_optimizer_state_dict(*module, optimizers, sent.optimizer, from_rank_0(group)); });
    REQUIRE(
        text.starts_with("[cohort] set_optimizer_state_dict: nothing was set\n  rank 1: set_optimizer_state_dict: the "
                         "options of \"weight\" have "));
    REQUIRE(text.ends_with("which SGD does not have\n    hint: the state is of another kind of optimizer"));
    REQUIRE(optimizer.state().empty() && other.state().empty());
  });
}

TEST(RefusalOfOneRank, OfPartsOnRankZeroAndOfOptions) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    const auto state = get_model_state_dict(*own.model);
    require_equal(error_of([&] { set_model_state_dict(*own.model, state, from_rank_0(group)); }),
                  "[cohort] set_model_state_dict: nothing was set\n"
                  "  rank 0: broadcast_from_rank0 needs full tensors on rank 0, but \"weight\" is a shard there\n"
                  "    hint: get it with full_state_dict");
    auto options = from_rank_0(group);
    options.full_state_dict = rank != 1;
    const auto sent = state_of_one();
    require_equal(
        error_of([&] { set_state_dict(*own.model, own.optimizer, sent, options); }),
        "[cohort] set_state_dict: nothing was set, as the ranks differ: full_state_dict is true on ranks 0 and 2, "
        "but false on rank 1" +
            std::string(kCallAlike));
    REQUIRE(own.is_unchanged());
  });
}

TEST(RefusalOfOneRank, OfGetting) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    const nn::Linear stranger(4, 3);
    auto options = whole_in(group);
    if (rank == 1) options.submodules = {stranger.get()};
    require_equal(error_of([&] { get_model_state_dict(*own.model, options); }),
                  "[cohort] get_model_state_dict: no rank has got a state\n"
                  "  rank 1: get_model_state_dict: one of `submodules`, a torch::nn::LinearImpl, is not in the model");
    const std::string reason =
        "[cohort] get_optimizer_state_dict: no rank has got a state\n"
        "  rank 1: parameter 0 of the optimizer's group 0 is not one of the model's\n"
        "    hint: pass the model that the optimizer was constructed with; with fully_shard both come from the "
        "wrapper, "
        "which has the parameters in shards";
    AdamW foreign(stranger->parameters());
    const auto& optimizers = rank == 1 ? OptimizerList(foreign) : OptimizerList(own.optimizer);
    require_equal(error_of([&] { get_optimizer_state_dict(*own.model, optimizers, whole_in(group)); }), reason);
    DistributedDataParallel copies(linear_of(1), {.process_group = group});
    auto zero = ZeroRedundancyOptimizer::make<AdamW>(copies->parameters(), torch::optim::AdamWOptions(0.1),
                                                     {.process_group = group});
    const auto& model = rank == 1 ? static_cast<const nn::Module&>(*stranger) : *copies;
    require_equal(error_of([&] { get_optimizer_state_dict(model, zero, whole_in(group)); }), reason);
  });
}

// What every rank says is said once, as the exception that it is.
TEST(RefusalOfOneRank, OfAllRanksAlike) {
  const auto bad = without(state_of_one(), "bias");
  on_ranks_of_refusal([&](int, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    REQUIRE(error_of([&] {
              set_model_state_dict(*own.model, bad.model, whole_in(group));
            }).starts_with("Error(s) in loading state_dict for FullySharded:"));
    try {
      set_model_state_dict(*own.model, bad.model, {.broadcast_from_rank0 = true, .process_group = group});
      REQUIRE(false && "refused");
    } catch (const c10::ValueError&) {
    }
  });
}

// What is right on each rank alone, but not together.
TEST(DifferencesOfRanks, OfOptionsForParts) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    const auto options = rank == 2 ? whole_in(group) : StateDictOptions();
    const std::string reason = ", as the ranks differ: full_state_dict is false on ranks 0 and 1, but true on rank 2" +
                               std::string(kCallAlike);
    const std::string nothing = ": no rank has got a state" + reason;
    require_equal(error_of([&] { get_model_state_dict(*own.model, options); }),
                  "[cohort] get_model_state_dict" + nothing);
    require_equal(error_of([&] { get_optimizer_state_dict(*own.model, own.optimizer, options); }),
                  "[cohort] get_optimizer_state_dict" + nothing);
    require_equal(error_of([&] { get_state_dict(*own.model, own.optimizer, options); }),
                  "[cohort] get_state_dict" + nothing);
    const auto state = get_state_dict(*own.model, own.optimizer);
    require_equal(error_of([&] { set_state_dict(*own.model, own.optimizer, state, options); }),
                  "[cohort] set_state_dict: nothing was set" + reason);
  });
}

TEST(DifferencesOfRanks, OfFunctions) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    const auto call = [&] {
      if (rank == 0) {
        get_state_dict(*own.model, own.optimizer);
      } else {
        get_model_state_dict(*own.model);
      }
    };
    require_equal(error_of(call),
                  std::string(rank == 0 ? "[cohort] get_state_dict" : "[cohort] get_model_state_dict") +
                      ": no rank has got a state, as the ranks differ: the function is get_state_dict on rank 0, but "
                      "get_model_state_dict on ranks 1 and 2" +
                      kCallAlike);
  });
}

TEST(DifferencesOfRanks, OfModels) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    const auto sharded = [&](const nn::Linear& module) {
      return fully_shard(module, {.process_group = group, .one_memory = false});
    };
    auto one = sharded(linear_of(1));
    auto other = sharded(nn::Linear(nn::LinearOptions(4, 3).bias(false)));
    auto third = sharded(nn::Linear(4, 2));
    const auto text_with = [&](const nn::Module& different) {
      const nn::Module& first = *one;
      return error_of([&] { get_model_state_dict(rank == 1 ? different : first, whole_in(group)); });
    };
    const std::string begin = "[cohort] get_model_state_dict: no rank has got a state, as the ranks differ: part ";
    require_equal(text_with(*other),
                  begin +
                      "2 of the state is \"bias\" of torch.Size([3]), Float on ranks 0 and 2, but nothing on rank 1" +
                      kCallAlike);
    require_equal(text_with(*third), begin +
                                         "1 of the state is \"weight\" of torch.Size([3, 4]), Float on ranks 0 and 2, "
                                         "but \"weight\" of torch.Size([2, 4]), Float on rank 1" +
                                         kCallAlike);
  });
}

// A module knows no ranks, but its wrapper and the optimizer do.
TEST(DifferencesOfRanks, OfBroadcastsToCopies) {
  const auto good = state_of_one();
  on_ranks_of_refusal([&](int rank, const Group& group) {
    DistributedDataParallel model(linear_of(1), {.process_group = group});
    auto zero = ZeroRedundancyOptimizer::make<AdamW>(model->parameters(), torch::optim::AdamWOptions(0.1),
                                                     {.process_group = group});
    const auto options = rank == 0 ? from_rank_0(group) : whole_in(group);
    const std::string reason =
        ": nothing was set, as the ranks differ: broadcast_from_rank0 is true on rank 0, but false on ranks 1 and 2" +
        std::string(kCallAlike);
    require_equal(error_of([&] { set_model_state_dict(*model, good.model, options); }),
                  "[cohort] set_model_state_dict" + reason);
    require_equal(error_of([&] { set_optimizer_state_dict(*model, zero, good.optimizer, options); }),
                  "[cohort] set_optimizer_state_dict" + reason);
    const auto text =
        error_of([&] { get_optimizer_state_dict(*model, zero, rank == 0 ? whole_in(group) : StateDictOptions()); });
    require_equal(text,
                  "[cohort] get_optimizer_state_dict: no rank has got a state, as the ranks differ: "
                  "full_state_dict is true on rank 0, but false on ranks 1 and 2" +
                      std::string(kCallAlike));
    REQUIRE(model->module().weight.eq(1).all().item<bool>() && zero.optim().state().empty());
  });
}

TEST(DifferencesOfRanks, OfGroups) {
  on_ranks_of_refusal([&](int rank, const Group& group) {
    ShardedLinear own(group, /*one_memory=*/false);
    const auto own_group = test::split_rank_threads(group, {{0}, {1}, {2}});
    require_equal(
        error_of(
            [&] { set_model_state_dict(*own.model, ShardedStateDict(), from_rank_0(rank == 2 ? own_group : group)); }),
        "[cohort] set_model_state_dict: nothing was set, as the ranks differ: process_group is that of ranks 0, 1 "
        "and 2 on ranks 0 and 1, but that of rank 0 on rank 2" +
            std::string(kCallAlike));
    // Where rank 1 does not come to the group of the options, the others do not go there.
    const auto again = test::split_rank_threads(group, {{}, {}, {}, {0, 1, 2}});
    const auto options = rank == 1 ? StateDictOptions() : from_rank_0(again);
    require_equal(
        error_of([&] { set_model_state_dict(*own.model, ShardedStateDict(), options); }),
        "[cohort] set_model_state_dict: nothing was set, as the ranks differ: full_state_dict is true on ranks 0 "
        "and 2, but false on rank 1" +
            std::string(kCallAlike));
  });
}

// The replica that has refused, its shards, and the other replica's.
COHORT_WORKER(refusal_in_replicas) {
  init_process_group(test::backend_of_tests().c_str());
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"replicas", "shards"});
  auto model = fully_shard(linear_of(1), {.mesh = mesh});
  auto state = state_of_one().model;
  if (get_rank() == 2) state.erase("bias");
  require_equal(error_of([&] { set_model_state_dict(*model, state, {.full_state_dict = true}); }),
                std::string("[cohort] set_model_state_dict: nothing was set\n  rank 2: ") + kMissingBias);
  const StateDictOptions options{.full_state_dict = true, .broadcast_from_rank0 = get_rank() == 3};
  require_equal(
      error_of([&] { set_model_state_dict(*model, state, options); }),
      "[cohort] set_model_state_dict: nothing was set, as the ranks differ: broadcast_from_rank0 is false on rank 2, "
      "but true on rank 3" +
          std::string(kCallAlike));
  destroy_process_group();
}

TEST(RefusalOfOneRank, OfReplicas) { test::run_workers("refusal_in_replicas", {.world_size = 4}).expect_success(); }

}  // namespace
}  // namespace cohort::checkpoint
