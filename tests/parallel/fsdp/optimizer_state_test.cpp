// The state of an optimizer of shards, put together, divided again, and gone on with by other numbers of ranks, beside an
// optimizer of whole parameters that sees the same gradients.
#include "cohort/parallel/fsdp/optimizer_state.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/fsdp/sharding.h"
#include "tests/parallel/zero/training.h"
#include "tests/support/rank_threads.h"

namespace cohort::fsdp {
namespace {

using checkpoint::StateDict;
using cohort::test::error_of;
using cohort::test::Parameters;
using torch::optim::Optimizer;

void run_on_shm(int world_size, const std::function<void(int, const Group&)>& fn) {
  cohort::test::run_rank_threads(world_size, fn, {.make_backend = comm::make_shm_backend});
}

at::Tensor values_of(at::IntArrayRef sizes, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::kFloat);
}

// The gradients do not depend on the number of ranks. With three ranks the last has nothing of p3 and p4.
struct FullParameters {
  FullParameters() {
    const std::vector<std::vector<int64_t>> sizes = {{5, 3}, {12}, {7}, {2, 2}, {1}, {4}};
    for (size_t i = 0; i < sizes.size(); ++i) {
      all.push_back(values_of(sizes[i], static_cast<int64_t>(i)).set_requires_grad(true));
      named.insert("p" + std::to_string(i), all.back());
    }
  }
  std::vector<NamedParameter> list() const {
    std::vector<NamedParameter> result;
    for (const auto& item : named) result.push_back({item.key(), item.value()});
    return result;
  }
  // `parameters`: all of these, or this rank's shards of them. The last never has a gradient.
  static void step(const Parameters& parameters, Optimizer& optimizer, int begin, int end, const Sharding* sharding) {
    const FullParameters whole;
    for (int step = begin; step < end; ++step) {
      for (size_t i = 0; i + 1 < parameters.size(); ++i) {
        const auto grad = values_of(whole.all[i].sizes(), 100 * step + static_cast<int64_t>(i));
        parameters[i].mutable_grad() = sharding && is_shard(*sharding, i) ? rows_of(*sharding, i, grad) : grad;
      }
      optimizer.step();
    }
  }
  static bool is_shard(const Sharding& sharding, size_t i) { return i < sharding.sharded_parameters().size(); }
  static at::Tensor rows_of(const Sharding& sharding, size_t i, const at::Tensor& full) {
    const auto& parameter = sharding.sharded_parameters()[i];
    if (parameter.dim > 0)
      return full.chunk(sharding.process_group()->getSize(), parameter.dim)[sharding.process_group()->getRank()];
    return full.flatten().narrow(0, parameter.offset, parameter.shard.numel()).view(parameter.shard.sizes());
  }

  Parameters all;
  StateDict named;
};

void require_same_states(const Optimizer& ours, const FullParameters& of_ours, const Optimizer& theirs,
                         const FullParameters& of_theirs) {
  const auto a = checkpoint::optimizer_state_dict(ours, of_ours.named);
  const auto b = checkpoint::optimizer_state_dict(theirs, of_theirs.named);
  REQUIRE(a.keys() == b.keys());
  for (const auto& item : b) REQUIRE(at::equal(a[item.key()], item.value()));
}

std::unique_ptr<Optimizer> make_rmsprop(cohort::test::ParamGroups groups) {
  return std::make_unique<torch::optim::RMSprop>(std::move(groups),
                                                 torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
}

std::unique_ptr<Optimizer> make_amsgrad(cohort::test::ParamGroups groups) {
  return std::make_unique<torch::optim::Adam>(std::move(groups), torch::optim::AdamOptions(0.01).amsgrad(true));
}

class FullyShardOptimizerStateOf : public testing::TestWithParam<cohort::test::OptimizerKind> {};

TEST_P(FullyShardOptimizerStateOf, PutTogetherIsThatOfAnOptimizerOfFullParameters) {
  run_on_shm(3, [](int rank, const Group& group) {
    const auto make = GetParam().make;
    const FullParameters undivided;
    const auto plain = make(cohort::test::two_groups(undivided.all, make));
    plain->param_groups()[1].options().set_lr(0.25);
    FullParameters::step(undivided.all, *plain, 0, 4, nullptr);

    const FullParameters divided;
    const Sharding sharding(divided.list(), {.process_group = group});
    const auto optimizer = make(cohort::test::two_groups(sharding.parameters(), make));
    optimizer->param_groups()[1].options().set_lr(0.25);
    FullParameters::step(sharding.parameters(), *optimizer, 0, 4, &sharding);
    const FullParameters other;
    const auto full = rank == 0 ? make(cohort::test::two_groups(other.all, make)) : nullptr;
    if (full) {  // it has a state already, also of the last
      other.all.back().mutable_grad() = at::ones({4});
      FullParameters::step(other.all, *full, 7, 9, nullptr);
    }
    get_full_optimizer_state(sharding.sharded_parameters(), *optimizer, full.get());
    if (full) require_same_states(*full, other, *plain, undivided);
    for (size_t i = 0; i < undivided.all.size(); ++i) {
      const auto value = full_tensor(sharding.sharded_parameters()[i]);
      REQUIRE(value.defined() == (rank == 0));
      if (rank == 0) REQUIRE(at::equal(value, undivided.all[i]));
    }
    barrier({.group = group});
  });
}

// Three ranks train, save and end; two go on, then one.
TEST_P(FullyShardOptimizerStateOf, GoesOnWithAnotherNumberOfRanks) {
  const auto make = GetParam().make;
  const FullParameters uninterrupted;
  const auto plain = make(cohort::test::two_groups(uninterrupted.all, make));
  FullParameters::step(uninterrupted.all, *plain, 0, 9, nullptr);

  const FullParameters saved;
  std::unique_ptr<Optimizer> state = make(cohort::test::two_groups(saved.all, make));
  state->state().clear();
  int begin = 0;
  for (const int world_size : {3, 2, 1}) {
    run_on_shm(world_size, [&](int rank, const Group& group) {
      const FullParameters training;
      {
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < saved.all.size(); ++i) training.all[i].copy_(saved.all[i]);
      }
      const Sharding sharding(training.list(), {.process_group = group});
      const auto optimizer = make(cohort::test::two_groups(sharding.parameters(), make));
      if (begin > 0) {
        optimizer->param_groups()[0].options().set_lr(123);
        FullParameters::step(sharding.parameters(), *optimizer, 50, 51, &sharding);  // what is loaded takes its place
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < saved.all.size(); ++i) {
          auto shard = sharding.parameters()[i];
          shard.copy_(FullParameters::rows_of(sharding, i, saved.all[i]));
        }
        set_full_optimizer_state(sharding.sharded_parameters(), *optimizer, rank == 0 ? state.get() : nullptr);
      }
      FullParameters::step(sharding.parameters(), *optimizer, begin, begin + 3, &sharding);
      barrier({.group = group});
      get_full_optimizer_state(sharding.sharded_parameters(), *optimizer, rank == 0 ? state.get() : nullptr);
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < saved.all.size(); ++i) {
        const auto value = full_tensor(sharding.sharded_parameters()[i]);
        if (rank == 0) saved.all[i].copy_(value);
      }
      barrier({.group = group});
    });
    begin += 3;
  }
  require_same_states(*state, saved, *plain, uninterrupted);
  cohort::test::require_same(saved.all, uninterrupted.all);
}

// Not of the fused ones: their kernels round the last elements of a tensor otherwise, and shards end elsewhere.
INSTANTIATE_TEST_SUITE_P(Optimizers, FullyShardOptimizerStateOf,
                         testing::Values(cohort::test::kOptimizerKinds[0], cohort::test::kOptimizerKinds[2],
                                         cohort::test::kOptimizerKinds[4],
                                         cohort::test::OptimizerKind{"rmsprop", make_rmsprop},
                                         cohort::test::OptimizerKind{"amsgrad", make_amsgrad}),
                         [](const auto& info) { return info.param.name; });

// What is loaded is the loader's own, and what had no state has none afterwards.
TEST(FullyShardOptimizerState, LoadingCopies) {
  run_on_shm(1, [](int, const Group& group) {
    const FullParameters undivided;
    const auto plain = cohort::test::make_sgd(cohort::test::two_groups(undivided.all, cohort::test::make_sgd));
    FullParameters::step(undivided.all, *plain, 0, 1, nullptr);
    const auto buffer = checkpoint::optimizer_state_dict(*plain, undivided.named)["state.p0.momentum_buffer"];
    const auto before = buffer.clone();
    const FullParameters divided;
    const Sharding sharding(divided.list(), {.process_group = group});
    const auto optimizer =
        cohort::test::make_sgd(cohort::test::two_groups(sharding.parameters(), cohort::test::make_sgd));
    set_full_optimizer_state(sharding.sharded_parameters(), *optimizer, plain.get());
    REQUIRE(optimizer->state().size() == 5);
    FullParameters::step(sharding.parameters(), *optimizer, 1, 2, &sharding);
    REQUIRE(at::equal(buffer, before));
    const auto blank = cohort::test::make_sgd(cohort::test::two_groups(undivided.all, cohort::test::make_sgd));
    set_full_optimizer_state(sharding.sharded_parameters(), *optimizer, blank.get());
    REQUIRE(optimizer->state().empty());
  });
}

// Parameters that are gathered, some of them cut along another dimension than 0; loaded where they are cut otherwise.
TEST(FullyShardOptimizerState, GatheredParameters) {
  run_on_shm(3, [](int rank, const Group& group) {
    const auto make = cohort::test::make_adamw;
    const FullParameters undivided;
    const auto plain = make(cohort::test::two_groups(undivided.all, make));
    FullParameters::step(undivided.all, *plain, 0, 3, nullptr);
    const FullParameters divided;
    const auto by_columns = [](const at::Tensor& parameter) -> std::optional<Shard> {
      if (parameter.dim() == 2 && parameter.size(1) == 3) return Shard(1);
      return std::nullopt;
    };
    const Sharding columns(divided.list(),
                           {.process_group = group, .shard_placement_fn = by_columns, .one_memory = false});
    REQUIRE(columns.sharded_parameters()[0].dim == 1);
    const auto optimizer = make(cohort::test::two_groups(columns.parameters(), make));
    FullParameters::step(columns.parameters(), *optimizer, 0, 3, &columns);
    const FullParameters other;
    const auto full = rank == 0 ? make(cohort::test::two_groups(other.all, make)) : nullptr;
    get_full_optimizer_state(columns.sharded_parameters(), *optimizer, full.get());
    if (full) require_same_states(*full, other, *plain, undivided);
    for (size_t i = 0; i < undivided.all.size(); ++i) {
      const auto value = full_tensor(columns.sharded_parameters()[i]);
      if (rank == 0) REQUIRE(at::equal(value, undivided.all[i]));
    }
    const auto fresh = make(cohort::test::two_groups(columns.parameters(), make));
    set_full_optimizer_state(columns.sharded_parameters(), *fresh, full.get());
    FullParameters::step(columns.parameters(), *fresh, 3, 5, &columns);
    FullParameters::step(undivided.all, *plain, 3, 5, nullptr);
    for (size_t i = 0; i < undivided.all.size(); ++i) {
      const auto expected = FullParameters::rows_of(columns, i, undivided.all[i].detach());
      REQUIRE(at::equal(columns.parameters()[i], expected));
    }
    barrier({.group = group});
  });
}

// Whole on every rank: the first one's state counts.
TEST(FullyShardOptimizerState, IgnoredParameters) {
  run_on_shm(2, [](int rank, const Group& group) {
    const FullParameters divided;
    const Sharding sharding(divided.list(),
                            {.process_group = group, .ignored_params = {divided.all[4], divided.all[5]}});
    auto own = sharding.parameters();
    own.insert(own.end(), divided.all.begin() + 4, divided.all.end());
    const auto make = cohort::test::make_adamw;
    const auto optimizer = make(cohort::test::two_groups(own, make));
    FullParameters::step(own, *optimizer, 0, 3, &sharding);
    const FullParameters undivided;
    const auto plain = make(cohort::test::two_groups(undivided.all, make));
    FullParameters::step(undivided.all, *plain, 0, 3, nullptr);
    const FullParameters other;
    const auto full = rank == 0 ? make(cohort::test::two_groups(other.all, make)) : nullptr;
    get_full_optimizer_state(sharding.sharded_parameters(), *optimizer, full.get());
    if (full) require_same_states(*full, other, *plain, undivided);

    const auto fresh = make(cohort::test::two_groups(own, make));
    set_full_optimizer_state(sharding.sharded_parameters(), *fresh, full.get());
    StateDict names;
    for (size_t i = 0; i < own.size(); ++i) names.insert("p" + std::to_string(i), own[i]);
    const auto loaded = checkpoint::optimizer_state_dict(*fresh, names);
    const auto trained = checkpoint::optimizer_state_dict(*optimizer, names);
    REQUIRE(loaded.keys() == trained.keys());
    for (const auto& item : trained) REQUIRE(at::equal(loaded[item.key()], item.value()));
    barrier({.group = group});
  });
}

TEST(FullyShardOptimizerState, Messages) {
  run_on_shm(2, [](int rank, const Group& group) {
    const FullParameters whole;
    const FullParameters divided;
    const Sharding sharding(divided.list(), {.process_group = group});
    const auto own = sharding.parameters();
    torch::optim::AdamW optimizer(own);
    FullParameters::step(own, optimizer, 0, 1, &sharding);
    const auto get = [&](Optimizer& of, Optimizer* full) {
      return error_of([&] { get_full_optimizer_state(sharding.sharded_parameters(), of, full); });
    };
    const auto set = [&](Optimizer* full) {
      return error_of([&] { set_full_optimizer_state(sharding.sharded_parameters(), optimizer, full); });
    };

    const auto null =
        "[cohort] the state of all parameters needs an optimizer on rank 0 of the group, but it is null there";
    REQUIRE_EQUAL(get(optimizer, nullptr), null);
    REQUIRE_EQUAL(set(nullptr), null);
    torch::optim::Adam adam(whole.all);
    REQUIRE_EQUAL(set(&adam), "[cohort] the optimizers of shards and of all parameters must be of one kind");
    torch::optim::AdamW two(
        {torch::optim::OptimizerParamGroup(whole.all), torch::optim::OptimizerParamGroup(Parameters())});
    REQUIRE_EQUAL(set(&two), "[cohort] loaded state dict has a different number of parameter groups");
    torch::optim::AdamW one(Parameters{whole.all[0]});
    REQUIRE_EQUAL(
        set(&one),
        "[cohort] loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
    torch::optim::AdamW reversed(Parameters(whole.all.rbegin(), whole.all.rend()));
    REQUIRE_EQUAL(set(&reversed),
                  "[cohort] parameter 0 of group 0 has the shape [4], but all ranks' shards together have [5, 3]");
    REQUIRE(optimizer.state().size() == 5);

    torch::optim::AdamW of_whole(whole.all);
    REQUIRE_EQUAL(get(of_whole, nullptr),
                  "[cohort] none of the optimizer's parameters is a shard; build it on model->parameters() of the "
                  "model that fully_shard returned");
    torch::optim::LBFGS lbfgs(own);
    REQUIRE_EQUAL(get(lbfgs, nullptr),
                  "[cohort] only the state of SGD, Adam, AdamW, Adagrad and RMSprop, and of kinds that "
                  "register_optimizer_kind has "
                  "been told, can be gathered from shards");
    const std::string differ = "[cohort] get_full_optimizer_state: no state was exchanged, as the ranks differ: ";
    const std::string hint =
        "\n  hint: all ranks need optimizers of the same groups of parameters, after the same steps";
    torch::optim::AdamW shorter(rank == 0 ? own : Parameters{own[0]});
    REQUIRE_EQUAL(
        get(shorter, nullptr),
        differ + "the number of parameters in each group of the optimizer is [6] on rank 0, but [1] on rank 1" + hint);
    torch::optim::AdamW mixed(rank == 0 ? Parameters{own[0], own[1]} : Parameters{own[0], whole.all[1]});
    REQUIRE_EQUAL(get(mixed, nullptr),
                  differ + "parameter 1 of group 0 is a shard on rank 0, but whole on rank 1" + hint);
    if (rank == 1) optimizer.step();
    REQUIRE_EQUAL(
        get(optimizer, &of_whole),
        differ +
            "the state of parameter 0 of group 0 is of 2 tensor(s) after step 1 on rank 0, but of 2 tensor(s) "
            "after step 2 on rank 1" +
            hint);
    if (rank == 1) optimizer.state().erase(own[0].unsafeGetTensorImpl());
    REQUIRE_EQUAL(
        get(optimizer, &of_whole),
        differ + "the state of parameter 0 of group 0 is of 2 tensor(s) after step 1 on rank 0, but nothing on rank 1" +
            hint);
    barrier({.group = group});
  });
}

TEST(FullyShardOptimizerState, ParametersOfAllWrappersOfAModel) {
  run_on_shm(2, [](int rank, const Group& group) {
    const Options options{.process_group = group};
    torch::nn::Sequential net(fully_shard(torch::nn::Linear(3, 4), options), torch::nn::Tanh(),
                              torch::nn::Linear(4, 5));
    const auto model = fully_shard(net, options);
    const auto all = sharded_parameters(*model);
    const std::vector<std::string> names = {"0.weight", "0.bias", "2.weight", "2.bias"};
    REQUIRE(all.size() == names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      REQUIRE(all[i].name == names[i] && all[i].shard.is_same(model->parameters()[i]));
      const auto full = full_tensor(all[i]);
      if (rank == 0) REQUIRE(full.sizes() == all[i].full.sizes());
    }
    barrier({.group = group});
    ShardedParameter gone{"gone", {}, at::ones({2})};
    REQUIRE_EQUAL(error_of([&] { full_tensor(gone); }),
                  "[cohort] Parameter 'gone' is no longer sharded: its wrapper was destroyed");
  });
}

TEST(FullyShardOptimizerState, SeveralGroupsMessage) {
  run_on_shm(1, [](int, const Group& group) {
    run_on_shm(1, [&](int, const Group& other) {
      auto a = at::ones({2}).set_requires_grad(true);
      auto b = at::ones({2}).set_requires_grad(true);
      const Sharding first({{"a", a}}, {.process_group = group});
      const Sharding second({{"b", b}}, {.process_group = other});
      torch::optim::AdamW optimizer({first.parameters()[0], second.parameters()[0]});
      REQUIRE_EQUAL(error_of([&] {
                      get_full_optimizer_state({first.sharded_parameters()[0], second.sharded_parameters()[0]},
                                               optimizer, nullptr);
                    }),
                    "[cohort] the optimizer's parameters are sharded over several groups of ranks; use one optimizer "
                    "for each group");
    });
  });
}

}  // namespace
}  // namespace cohort::fsdp
