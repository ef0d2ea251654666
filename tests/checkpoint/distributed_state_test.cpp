// get_state_dict and set_state_dict: what each strategy's ranks hold, from each strategy to each, and what is refused.
#include "cohort/checkpoint/state/distributed_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/state/python_state.h"
#include "cohort/comm/shm/make_shm_backend.h"
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
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::Optimizer;

void on_ranks(int world_size, const std::function<void(int, const Group&)>& fn) {
  test::run_rank_threads(world_size, fn, {.make_backend = comm::make_shm_backend});
}

// Of `scale` and nothing else, the same on every rank.
struct PartsNetImpl : nn::Module {
  explicit PartsNetImpl(double scale = 1) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).view_as(parameter).mul(scale / 10));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(first(norm(x)))); }
  nn::Linear first{4, 5};
  nn::BatchNorm1d norm{4};
  nn::Linear last{5, 3};
};
TORCH_MODULE(PartsNet);

at::Tensor part_batch(int step) { return torch::arange(24.0).remainder(7 + step).view({6, 4}).div(5); }

template <class Forward>
void train(Forward&& forward, Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    optimizer.zero_grad();
    forward(part_batch(step)).pow(2).mean().backward();
    optimizer.step();
  }
}

AdamWOptions adamw_options() { return AdamWOptions(0.05).weight_decay(0.1); }

// A single process, after two steps. Ranks get the same batches, so that sums of gradients are the same, too.
struct Reference {
  Reference() : optimizer(net->parameters(), adamw_options()) {
    train(net, optimizer, 0, 2);
    state = get_state_dict(*net, optimizer);
    for (auto* const each : {&state.model, &state.optimizer}) {
      for (auto& item : *each) {
        if (item.value().is_tensor()) item.value().tensor = item.value().tensor.clone();
      }
    }
  }
  PartsNet net;
  AdamW optimizer;
  ModelAndOptimizerState state;
};

void require_same_values(const ShardedStateDict& got, const ShardedStateDict& wanted) {
  const auto own_keys = got.keys(), keys = wanted.keys();
  REQUIRE(std::set(own_keys.begin(), own_keys.end()) == std::set(keys.begin(), keys.end()));
  for (const auto& item : wanted) {
    const auto& value = got[item.key()];
    REQUIRE(value.is_tensor() == item.value().is_tensor() && !value.is_shard());
    if (value.is_tensor() && !at::allclose(value.tensor, item.value().tensor, 1e-5, 1e-6)) {
      throw std::runtime_error("\"" + item.key() + "\" differs");
    }
  }
}

struct Sharded {
  explicit Sharded(const Group& group, bool one_memory = true, double scale = 1)
      : model(fully_shard(PartsNet(scale), {.process_group = group, .one_memory = one_memory})),
        optimizer(model->parameters(), adamw_options()) {}
  FullySharded<PartsNetImpl> model;
  AdamW optimizer;
};

StateDictOptions full_of(const Group& group) { return {.full_state_dict = true, .process_group = group}; }
StateDictOptions broadcast_in(const Group& group) {
  return {.full_state_dict = true, .broadcast_from_rank0 = true, .process_group = group};
}

TEST(DistributedState, AShardIsAPartWithItsPlace) {
  on_ranks(3, [](int rank, const Group& group) {
    Sharded own(group);
    const auto model = get_model_state_dict(*own.model);
    REQUIRE(model.keys() == state_dict(*PartsNet()).keys());
    const auto& weight = model["first.weight"];
    REQUIRE(weight.is_shard() && weight.spec->shape() == (std::vector<int64_t>{5, 4}));
    REQUIRE(weight.spec->placements() == Placements{Shard(0)});
    REQUIRE(weight.spec->local_shard().offset == (std::vector<int64_t>{rank < 2 ? 2 * rank : 4, 0}));
    REQUIRE(weight.tensor.equal(PartsNet()->first->weight.slice(0, 2 * rank, std::min<int64_t>(5, 2 * rank + 2))));
    REQUIRE(!model["norm.running_mean"].is_shard() && !weight.tensor.requires_grad());
    train(own.model, own.optimizer, 0, 1);
    const auto optimizer = get_optimizer_state_dict(*own.model, own.optimizer);
    REQUIRE(optimizer["state.first.weight.exp_avg"].spec == weight.spec);
    REQUIRE(optimizer["state.first.weight.step"].tensor.item<double>() == 1);
    REQUIRE(optimizer["param_groups.first.weight.lr"].value.toDouble() == 0.05);
  });
}

TEST(DistributedState, FullStatesAreThoseOfOneProcess) {
  const Reference reference;
  for (const bool one_memory : {true, false}) {
    on_ranks(3, [&](int rank, const Group& group) {
      Sharded own(group, one_memory);
      train(own.model, own.optimizer, 0, 2);
      const auto state = get_state_dict(*own.model, own.optimizer, full_of(group));
      require_same_values(state.model, reference.state.model);
      require_same_values(state.optimizer, reference.state.optimizer);
      auto options = full_of(group);
      options.cpu_offload = true;
      REQUIRE(get_model_state_dict(*own.model, options).size() == (rank == 0 ? state.model.size() : 0));
    });
  }
}

TEST(DistributedState, EveryStrategyGoesOnFromAFullState) {
  Reference reference;
  const auto state = reference.state;
  train(reference.net, reference.optimizer, 2, 4);
  const auto wanted = get_state_dict(*reference.net, reference.optimizer);
  for (const bool one_memory : {true, false}) {
    on_ranks(3, [&](int, const Group& group) {
      Sharded own(group, one_memory, /*scale=*/3);
      set_state_dict(*own.model, own.optimizer, state, full_of(group));
      train(own.model, own.optimizer, 2, 4);
      const auto end = get_state_dict(*own.model, own.optimizer, full_of(group));
      require_same_values(end.model, wanted.model);
      require_same_values(end.optimizer, wanted.optimizer);
    });
  }
  on_ranks(2, [&](int, const Group& group) {
    DistributedDataParallel model(PartsNet(3), {.process_group = group});
    auto zero = ZeroRedundancyOptimizer::make<AdamW>(model->parameters(), adamw_options(), {.process_group = group});
    set_state_dict(*model, zero, state, full_of(group));
    train(model, zero, 2, 4);
    const auto end = get_state_dict(*model, zero, full_of(group));
    require_same_values(end.model, wanted.model);
    REQUIRE(end.optimizer.size() == wanted.optimizer.size());
    for (const auto& item : wanted.optimizer) {
      const auto& value = end.optimizer[item.key()];
      REQUIRE(!value.is_tensor() || at::allclose(value.tensor, item.value().tensor, 1e-5, 1e-6));
    }
  });
}

TEST(DistributedState, RankZerosStateReachesAll) {
  const Reference reference;
  for (const bool one_memory : {true, false}) {
    on_ranks(3, [&](int rank, const Group& group) {
      Sharded own(group, one_memory, /*scale=*/3);
      set_state_dict(*own.model, own.optimizer, rank == 0 ? reference.state : ModelAndOptimizerState(),
                     broadcast_in(group));
      const auto got = get_state_dict(*own.model, own.optimizer, full_of(group));
      require_same_values(got.model, reference.state.model);
      require_same_values(got.optimizer, reference.state.optimizer);
    });
  }
}

TEST(DistributedState, PartsComeBackAndShareMemory) {
  on_ranks(2, [&](int, const Group& group) {
    Sharded own(group), other(group, /*one_memory=*/false, /*scale=*/3);
    train(own.model, own.optimizer, 0, 2);
    const auto state = get_state_dict(*own.model, own.optimizer);
    set_state_dict(*other.model, other.optimizer, state);
    const auto got = get_state_dict(*other.model, other.optimizer, full_of(group));
    const auto wanted = get_state_dict(*own.model, own.optimizer, full_of(group));
    require_same_values(got.model, wanted.model);
    require_same_values(got.optimizer, wanted.optimizer);
    REQUIRE(state.model["last.weight"].tensor.data_ptr() == own.model->parameters()[4].data_ptr());
  });
}

// In Python the optimizer makes a step.
TEST(DistributedState, BeforeTheFirstStepThereAreBlankStates) {
  PartsNet net;
  net->last->bias.requires_grad_(false);
  AdamW optimizer(net->parameters(), adamw_options());
  const auto state = get_optimizer_state_dict(*net, optimizer);
  EXPECT_TRUE(optimizer.state().empty());
  EXPECT_TRUE(state["state.first.weight.exp_avg_sq"].tensor.equal(torch::zeros({5, 4})));
  EXPECT_EQ(state["state.first.weight.step"].tensor.item<double>(), 0);
  EXPECT_FALSE(state.contains("state.last.bias.step"));
  set_optimizer_state_dict(*net, optimizer, state);
  EXPECT_EQ(optimizer.state().size(), 5u);
  torch::optim::SGD plain(net->parameters(), 0.1);
  set_optimizer_state_dict(*net, plain, get_optimizer_state_dict(*net, plain));
  EXPECT_TRUE(plain.state().empty());
}

TEST(DistributedState, ZeroHasWhatItsRankOwns) {
  on_ranks(2, [](int, const Group& group) {
    DistributedDataParallel model(PartsNet(), {.process_group = group});
    auto zero = ZeroRedundancyOptimizer::make<AdamW>(model->parameters(), adamw_options(), {.process_group = group});
    train(model, zero, 0, 1);
    const auto state = get_optimizer_state_dict(*model, zero);
    size_t num_owned = 0;
    for (const auto& item : state) num_owned += item.key().ends_with(".exp_avg") ? 1 : 0;
    REQUIRE(num_owned == zero.optim().param_groups()[0].params().size());
    REQUIRE(state.contains("param_groups.first.weight.lr") && state.contains("param_groups.last.bias.lr"));
    set_optimizer_state_dict(*model, zero, state);
    REQUIRE(zero.optim().state().size() == num_owned);
  });
}

TEST(DistributedState, FrozenParametersAndSubmodules) {
  PartsNet net;
  net->first->weight.requires_grad_(false);
  EXPECT_FALSE(get_model_state_dict(*net, {.ignore_frozen_params = true}).contains("first.weight"));
  PartsNet other(3);
  other->first->weight.requires_grad_(false);
  set_model_state_dict(*other, get_model_state_dict(*net, {.ignore_frozen_params = true}),
                       {.ignore_frozen_params = true});
  EXPECT_FALSE(other->first->weight.equal(net->first->weight));
  EXPECT_TRUE(other->last->weight.equal(net->last->weight));
  StateDictOptions options{.submodules = {net->last.get()}};
  EXPECT_THAT(get_model_state_dict(*net, options).keys(), testing::ElementsAre("last.weight", "last.bias"));
  options.keep_submodule_prefixes = false;
  EXPECT_THAT(get_model_state_dict(*net, options).keys(), testing::ElementsAre("weight", "bias"));
  options.submodules.push_back(net->first.get());
  EXPECT_EQ(error_of([&] { get_model_state_dict(*net, options); }),
            "[cohort] get_model_state_dict: two submodules have \"weight\"\n"
            "  hint: ask for one submodule, or keep the prefixes");
}

TEST(DistributedState, SeveralOptimizersShareADict) {
  PartsNet net;
  AdamW first({net->first->parameters()}, adamw_options());
  torch::optim::SGD rest({net->last->parameters()}, torch::optim::SGDOptions(0.1).momentum(0.9));
  net->forward(part_batch(0)).mean().backward();
  first.step();
  rest.step();
  const auto state = get_optimizer_state_dict(*net, {&first, &rest});
  AdamW again({net->first->parameters()}, AdamWOptions(0.5));
  set_optimizer_state_dict(*net, again, state);
  EXPECT_EQ(again.param_groups()[0].options().get_lr(), 0.05);
  EXPECT_EQ(again.state().size(), 2u);
}

TEST(DistributedState, NestedStatesArePythons) {
  const Reference reference;
  PartsNet net;
  AdamW optimizer({torch::optim::OptimizerParamGroup({net->parameters()[5], net->parameters()[0]}),
                   torch::optim::OptimizerParamGroup(
                       {net->parameters()[1], net->parameters()[2], net->parameters()[3], net->parameters()[4]})});
  set_optimizer_state_dict(*net, optimizer, reference.state.optimizer);
  const auto flat = get_optimizer_state_dict(*net, optimizer);
  for (const auto keys : {ParameterKeys::kNumbers, ParameterKeys::kNames}) {
    const auto nested = nested_optimizer_state(flat, *net, optimizer, keys);
    const auto group = detail::entry_of(nested, "param_groups").toListRef()[0];
    const auto first = detail::entry_of(group, "params").toListRef()[0];
    EXPECT_EQ(detail::key_text(first), keys == ParameterKeys::kNumbers ? "0" : "last.bias");
    AdamW other(net->parameters(), AdamWOptions(0.7));
    if (keys == ParameterKeys::kNames) {
      set_optimizer_state_dict(*net, other, flat_optimizer_state(nested, *net, other));
      require_same_values(get_optimizer_state_dict(*net, other), reference.state.optimizer);
    } else {
      require_same_values(flat_optimizer_state(nested, *net, optimizer), flat);
      EXPECT_EQ(error_of([&] { flat_optimizer_state(nested, *net, other); }),
                "loaded state dict has a different number of parameter groups");
    }
  }
}

TEST(DistributedState, LbfgsHasListsByNumber) {
  PartsNet net, other;
  const auto closure_of = [](PartsNet& of, Optimizer& optimizer) {
    return [&] {
      optimizer.zero_grad();
      auto loss = of->forward(part_batch(0)).pow(2).mean();
      loss.backward();
      return loss;
    };
  };
  torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3)),
      again(other->parameters());
  optimizer.step(closure_of(net, optimizer));
  const auto state = get_state_dict(*net, optimizer);
  EXPECT_TRUE(state.optimizer.contains("state.first.weight.old_dirs.0"));
  set_state_dict(*other, again, state);
  require_same_values(get_optimizer_state_dict(*other, again), state.optimizer);
  optimizer.step(closure_of(net, optimizer));
  again.step(closure_of(other, again));
  EXPECT_TRUE(other->first->weight.equal(net->first->weight));
}

TEST(DistributedState, NothingIsSetIfRefused) {
  const Reference reference;
  PartsNet net(3);
  AdamW optimizer(net->parameters(), AdamWOptions(0.7));
  const auto before = net->first->weight.clone();
  const auto refusal = [&](const std::function<void(ModelAndOptimizerState&)>& spoil, bool strict = true) {
    auto state = reference.state;
    spoil(state);
    const auto text = error_of([&] { set_state_dict(*net, optimizer, state, {.strict = strict}); });
    EXPECT_TRUE(net->first->weight.equal(before) && optimizer.state().empty());
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.7);
    return text;
  };
  EXPECT_EQ(refusal([](auto& state) { state.model.erase("last.bias"); }),
            "Error(s) in loading state_dict for PartsNet:\n\tMissing key(s) in state_dict: \"last.bias\". ");
  EXPECT_EQ(refusal([](auto& state) { state.optimizer.erase("param_groups.last.bias.eps"); }),
            "[cohort] set_optimizer_state_dict: the state does not fit the optimizer\n"
            "\tMissing key(s): \"param_groups.last.bias.eps\".\n"
            "  hint: set StateDictOptions::strict = false to keep what is missing");
  EXPECT_EQ(refusal([](auto& state) {
              for (const char* field : {"step", "exp_avg", "exp_avg_sq"}) {
                state.optimizer.erase(std::string("state.last.bias.") + field);
              }
            }),
            "Missing optimizer state for parameter 'last.bias' in checkpoint. The parameter requires gradients but has "
            "no saved "
            "optimizer state. To load anyway, use StateDictOptions(strict=False).");
  EXPECT_EQ(refusal([](auto& state) { state.optimizer["state.last.bias.exp_avg"] = torch::ones({4}); }, false),
            "[cohort] size mismatch for \"exp_avg\" in the state of \"last.bias\": the checkpoint has shape [4], the "
            "parameter "
            "has shape [3]\n  hint: construct model and optimizer as in the run that was saved");
  EXPECT_EQ(refusal([](auto& state) { state.optimizer["param_groups.last.bias.lr"] = StateValue(c10::IValue(0.5)); }),
            "All the parameters in the same parameter group should have the same saved param_group value. But "
            "first.weight.lr is "
            "0.05 while other(s) is 0.5.");
  EXPECT_EQ(refusal([](auto& state) { state.model["last.bias"] = StateValue(c10::IValue(0.5)); }),
            "[cohort] set_model_state_dict: \"last.bias\" of the state dict is 0.5, not a tensor");
}

TEST(DistributedState, NotStrictKeepsWhatIsMissing) {
  const Reference reference;
  PartsNet net(3);
  AdamW optimizer(net->parameters(), AdamWOptions(0.7).eps(0.25));
  auto state = reference.state;
  state.model.erase("last.bias");
  for (const auto& key : reference.state.optimizer.keys()) {
    if (key.find(".last.bias.") != std::string::npos || key.ends_with(".eps")) state.optimizer.erase(key);
  }
  const auto before = net->last->bias.clone();
  const auto keys = set_state_dict(*net, optimizer, state, {.strict = false});
  EXPECT_THAT(keys.missing_keys, testing::ElementsAre("last.bias"));
  EXPECT_TRUE(net->last->bias.equal(before) && net->last->weight.equal(reference.net->last->weight));
  EXPECT_EQ(optimizer.state().size(), 5u);
  EXPECT_EQ(static_cast<AdamWOptions&>(optimizer.param_groups()[0].options()).eps(), 0.25);
}

TEST(DistributedState, PartsOfAnotherKindMessage) {
  on_ranks(2, [](int rank, const Group& group) {
    Sharded own(group);
    const auto state = get_model_state_dict(*own.model);
    PartsNet whole;
    const auto text = error_of([&] { set_model_state_dict(*whole, state); });
    REQUIRE(text.starts_with("[cohort] \"first.weight\" of the state dict is a shard of a tensor, "));
    REQUIRE(text.ends_with(
        ", but this rank holds the full tensor\n  hint: fill a state dict of this model with load_sharded(), "
        "which reads shards of any mesh, or pass full tensors"));
    test::require_equal(
        error_of(
            [&] { set_model_state_dict(*own.model, rank == 0 ? state : ShardedStateDict(), broadcast_in(group)); }),
        "[cohort] set_model_state_dict: nothing was set\n"
        "  rank 0: broadcast_from_rank0 needs full tensors on rank 0, but \"first.weight\" is a shard there\n"
        "    hint: get it with full_state_dict");
    test::require_equal(error_of([&] { set_model_state_dict(*own.model, state, {.broadcast_from_rank0 = true}); }),
                        "full_state_dict must be True when broadcast_from_rank0 is True.");
    PartsNet stranger;
    test::require_equal(
        error_of([&] { get_optimizer_state_dict(*stranger, own.optimizer); }),
        "[cohort] parameter 0 of the optimizer's group 0 is not one of the model's\n"
        "  hint: pass the model that the optimizer was constructed with; with fully_shard both come from the "
        "wrapper, which has the parameters in shards");
    test::require_equal(
        error_of([&] { load_state_dict(own.model->module(), state_dict(*stranger)); }),
        "[cohort] load_state_dict: parameter \"first.weight\" is one rank's shard of a tensor, of fully_shard or of a "
        "tensor-parallel layer\n  hint: call set_model_state_dict() with full_state_dict, which gives each rank its "
        "shard, or a tensor-parallel layer's load_full()");
    group->barrier()->wait();
  });
}

TEST(DistributedState, WhatWasLetGoMessage) {
  on_ranks(2, [](int, const Group& group) {
    Sharded own(group, /*one_memory=*/false);
    test::require_equal(error_of([&] { state_dict(*own.model); }),
                        "[cohort] state_dict: parameter \"first.weight\" is not in memory: fully_shard has freed it\n"
                        "  hint: call get_model_state_dict(), which returns this rank's shard, or, with "
                        "full_state_dict, the full tensor");
  });
}

// Two replicas of two shards each, and rows of the second dimension.
COHORT_WORKER(states_of_hybrid_shards) {
  init_process_group("gloo");
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"replicas", "shards"});
  const auto place = [](const at::Tensor& parameter) {
    return fsdp::ShardPlacementResult(parameter.dim() == 2 && parameter.size(1) == 4 ? Shard(1) : Shard(0));
  };
  auto model = fully_shard(PartsNet(), {.mesh = mesh, .shard_placement_fn = place});
  const auto state = get_model_state_dict(*model);
  REQUIRE(state["first.weight"].spec->placements() == (Placements{Replicate(), Shard(1)}));
  REQUIRE(state["last.weight"].spec->placements() == (Placements{Replicate(), Shard(0)}));
  REQUIRE(state["first.weight"].tensor.equal(PartsNet()->first->weight.chunk(2, 1)[get_rank() % 2]));
  const PartsNet other(3);
  set_model_state_dict(*model, get_rank() == 0 ? get_model_state_dict(*other) : ShardedStateDict(),
                       {.full_state_dict = true, .broadcast_from_rank0 = true});
  require_same_values(get_model_state_dict(*model, {.full_state_dict = true}), get_model_state_dict(*other));
  destroy_process_group();
}

TEST(DistributedState, OfHybridShards) {
  test::run_workers("states_of_hybrid_shards", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort::checkpoint
