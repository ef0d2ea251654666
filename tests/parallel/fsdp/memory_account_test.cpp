#include "cohort/parallel/fsdp/memory_account.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <latch>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::fsdp {
namespace {

using Counted = MemoryAccount::Parameter;

void run_accounted(int world_size, const std::function<void(int, const Group&)>& fn) {
  cohort::test::run_rank_threads(world_size, fn, {.make_backend = comm::make_shm_backend});
}

size_t sum_over(const MemoryAccount& account, size_t Counted::*field) {
  size_t sum = 0;
  for (const auto& parameter : account.parameters) sum += parameter.*field;
  return sum;
}

constexpr size_t kMlpBytes = 4 * (16 * 8 + 16 + 16 * 16 + 16 + 4 * 16 + 4);

// After a step, when the next forward has begun. The last rank's shards of the last layer are empty.
TEST(FullyShardMemory, ReportMessage) {
  run_accounted(3, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    torch::optim::AdamW optimizer(model->parameters());
    model(cohort::test::batch_of(rank, 0)).sum().backward();
    optimizer.step();
    model(cohort::test::batch_of(rank, 1));
    const auto report = memory_report(*model, optimizer);
    if (rank != 2) return;
    // Copies are made where tensors lie in memory of the rank's own.
    const bool is_copied = !comm::shares_tensors(group);
    EXPECT_EQ(report,
              std::string("memory of fully_shard, rank 2 of 3\n"
                          "  name             dtype     shape    shard  parameter  copy  gradient  optimizer  waiting\n"
                          "  first.weight   float32   [16, 8]   [4, 8]      128 B   0 B     128 B      256 B      0 B\n"
                          "  first.bias     float32      [16]      [4]       16 B   0 B      16 B       32 B      0 B\n"
                          "  second.weight  float32  [16, 16]  [4, 16]      256 B   0 B     256 B      512 B      0 B\n"
                          "  second.bias    float32      [16]      [4]       16 B   0 B      16 B       32 B      0 B\n"
                          "  third.weight   float32   [4, 16]  [0, 16]        0 B   0 B       0 B        0 B      0 B\n"
                          "  third.bias     float32       [4]      [0]        0 B   0 B       0 B        0 B      0 B\n"
                          "\n"
                          "                                        this rank  all ranks\n"
                          "  parameters                                416 B    1.9 KiB\n"
                          "  copies of parameters for modules            0 B        0 B\n"
                          "  gradients of shards                       416 B    1.9 KiB\n"
                          "  optimizer's state of shards               832 B    3.8 KiB\n"
                          "  gradients waiting for a reduction           0 B        0 B\n"
                          "  gradients that others may be reading        0 B        0 B\n") +
                  (is_copied ? "  pages of copies of gradients            1.9 KiB    5.7 KiB\n"
                               "  in all                                  3.5 KiB   13.2 KiB\n"
                             : "  pages of copies of gradients                0 B        0 B\n"
                               "  in all                                  1.6 KiB    7.6 KiB\n"));
  });
}

TEST(FullyShardMemory, GradientsThatAreNotReducedYet) {
  run_accounted(2, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    {
      const auto local = model->no_sync();
      model(cohort::test::batch_of(rank, 0)).sum().backward();
    }
    auto account = memory_account(*model, optimizer);
    EXPECT_EQ(sum_over(account, &Counted::num_waiting_bytes), kMlpBytes);
    EXPECT_EQ(sum_over(account, &Counted::num_gradient_bytes), 0u);
    model(cohort::test::batch_of(rank, 1)).sum().backward();
    account = memory_account(*model, optimizer);
    EXPECT_EQ(sum_over(account, &Counted::num_waiting_bytes), 0u);
    EXPECT_EQ(sum_over(account, &Counted::num_gradient_bytes), kMlpBytes / 2);
    barrier({.group = group});
  });
}

// Rank 0 looks in the middle of its backward pass, while rank 1 has not begun with it. The head's gradients are posted then.
TEST(FullyShardMemory, GradientsOnTheirWay) {
  std::latch has_looked(1);
  run_accounted(2, [&](int rank, const Group& group) {
    torch::nn::Linear body(4, 4), head(4, 6);
    torch::nn::Sequential net(fully_shard(body, {.process_group = group}), head);
    auto model = fully_shard(net, {.process_group = group});
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto loss = model(at::ones({2, 4}).requires_grad_()).sum();
    size_t in_flight = 0, staged = 0;
    if (rank == 1) has_looked.wait();
    const auto look = [&](const at::Tensor&) {
      const auto account = memory_account(model->sharding(), optimizer);
      EXPECT_EQ(account.parameters.size(), 2u);
      in_flight = account.num_in_flight_bytes;
      staged = account.num_staging_bytes;
      has_looked.count_down();
    };
    if (rank == 0) body->weight.register_hook(look);
    loss.backward();
    constexpr size_t kHeadBytes = 4 * (6 * 4 + 6);
    constexpr size_t kBodyBytes = 4 * (4 * 4 + 4);
    const bool is_copied = !comm::shares_tensors(group);
    if (rank == 0) {
      EXPECT_EQ(in_flight, is_copied ? 0 : kHeadBytes);
      EXPECT_EQ(staged, is_copied ? kHeadBytes : 0);
    }
    const auto account = memory_account(*model, optimizer);
    std::vector<std::string> names;
    for (const auto& parameter : account.parameters) names.push_back(parameter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"}));
    EXPECT_EQ(account.num_staging_bytes, is_copied ? kHeadBytes + kBodyBytes : 0);
    model(at::ones({2, 4}));
    EXPECT_EQ(memory_account(*model, optimizer).num_in_flight_bytes, 0u);
    barrier({.group = group});
  });
}

TEST(FullyShardMemory, TheCopyThatModulesReadIsThereOnce) {
  run_accounted(2, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Mlp>();
    auto model = fully_shard(net, {.process_group = group, .mp_policy = {.param_dtype = at::kBFloat16}});
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto account = memory_account(*model, optimizer);
    EXPECT_EQ(sum_over(account, &Counted::num_shard_bytes), kMlpBytes / 2);
    EXPECT_EQ(sum_over(account, &Counted::num_copy_bytes), kMlpBytes / 2 / 2);
    EXPECT_EQ(account.parameters.at(0).dtype, at::kFloat);
    const auto local = model->no_sync();
    model(cohort::test::batch_of(rank, 0)).sum().backward();
    EXPECT_EQ(sum_over(memory_account(*model, optimizer), &Counted::num_waiting_bytes), kMlpBytes / 2);
    barrier({.group = group});
  });
}

// Looks at what there is in the middle of its forward pass.
struct LookingImpl : torch::nn::Module {
  LookingImpl() { linear = register_module("linear", torch::nn::Linear(4, 6)); }
  at::Tensor forward(at::Tensor x) {
    look();
    return linear(x);
  }
  torch::nn::Linear linear{nullptr};
  std::function<void()> look = [] {};
};
TORCH_MODULE(Looking);

TEST(FullyShardMemory, GatheredParametersWhileTheyAreThere) {
  run_accounted(2, [](int rank, const Group& group) {
    constexpr size_t kWholeBytes = 4 * (6 * 4 + 6);
    Looking net;
    auto model = fully_shard(net, {.process_group = group, .one_memory = false});
    torch::optim::AdamW optimizer(model->parameters());
    const auto sum_of = [&](size_t Counted::*field) { return sum_over(memory_account(*model, optimizer), field); };
    size_t in_forward = 0;
    net->look = [&] { in_forward = sum_of(&Counted::num_copy_bytes); };
    const auto input = at::full({2, 4}, rank + 1.0);
    EXPECT_EQ(sum_of(&Counted::num_shard_bytes), kWholeBytes / 2);
    EXPECT_EQ(sum_of(&Counted::num_copy_bytes), 0u);
    {
      const auto local = model->no_sync();
      model(input).sum().backward();
      EXPECT_EQ(in_forward, kWholeBytes);
      EXPECT_EQ(sum_of(&Counted::num_waiting_bytes), kWholeBytes);
    }
    EXPECT_EQ(sum_of(&Counted::num_copy_bytes), 0u);
    model(input).sum().backward();
    optimizer.step();
    EXPECT_EQ(sum_of(&Counted::num_waiting_bytes), 0u);
    EXPECT_EQ(sum_of(&Counted::num_gradient_bytes), kWholeBytes / 2);
    EXPECT_EQ(sum_of(&Counted::num_optimizer_bytes), kWholeBytes);
  });
}

// Argument 0: "one memory" or "gathered". Hosts are pairs of ranks.
COHORT_WORKER(accounts_for_sums_kept_back) {
  init_process_group({.backend = "shm"});
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"replicas", "shards"});
  auto net = cohort::test::seeded_net<cohort::test::Mlp>();
  auto model = fully_shard(net, {.mesh = mesh, .one_memory = cohort::test::worker_arguments().at(0) == "one memory"});
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const auto waiting_after_a_pass = [&](bool all_reduces) {
    model->set_requires_all_reduce(all_reduces);
    model(cohort::test::batch_of(get_rank(), 0)).sum().backward();
    return sum_over(memory_account(*model, optimizer), &Counted::num_waiting_bytes);
  };
  REQUIRE(waiting_after_a_pass(false) == kMlpBytes / 2);
  REQUIRE(waiting_after_a_pass(true) == 0);
  barrier();
  destroy_process_group();
}

TEST(FullyShardMemory, SumsThatAreKeptBack) {
  for (const std::string how : {"one memory", "gathered"}) {
    SCOPED_TRACE(how);
    cohort::test::run_workers("accounts_for_sums_kept_back", {.world_size = 4, .arguments = {how}}).expect_success();
  }
}

template <class Optimizer, class Options>
MemoryAccount account_after_a_step(const Group& group, const Options& options) {
  auto net = cohort::test::seeded_net<cohort::test::Mlp>();
  auto model = fully_shard(net, {.process_group = group});
  Optimizer optimizer(model->parameters(), options);
  const auto loss = [&] { return model(cohort::test::batch_of(0, 0)).sum(); };
  loss().backward();
  if constexpr (std::is_same_v<Optimizer, torch::optim::LBFGS>) {
    optimizer.step([&] { return loss().detach(); });
  } else {
    optimizer.step();
  }
  return memory_account(*model, optimizer);
}

TEST(FullyShardMemory, StateOfEachOptimizer) {
  run_accounted(1, [](int, const Group& group) {
    namespace optim = torch::optim;
    const auto times = [](const MemoryAccount& account) {
      EXPECT_TRUE(account.is_optimizer_known);
      return static_cast<double>(sum_over(account, &Counted::num_optimizer_bytes)) / kMlpBytes;
    };
    EXPECT_EQ(times(account_after_a_step<optim::SGD>(group, optim::SGDOptions(0.1))), 0);
    EXPECT_EQ(times(account_after_a_step<optim::SGD>(group, optim::SGDOptions(0.1).momentum(0.9))), 1);
    EXPECT_EQ(times(account_after_a_step<optim::Adam>(group, optim::AdamOptions())), 2);
    EXPECT_EQ(times(account_after_a_step<optim::Adam>(group, optim::AdamOptions().amsgrad(true))), 3);
    EXPECT_EQ(times(account_after_a_step<optim::AdamW>(group, optim::AdamWOptions().amsgrad(true))), 3);
    EXPECT_EQ(times(account_after_a_step<cohort::optim::AdamW>(group, optim::AdamWOptions())), 2);
    EXPECT_EQ(times(account_after_a_step<optim::Adagrad>(group, optim::AdagradOptions())), 1);
    EXPECT_EQ(times(account_after_a_step<optim::RMSprop>(group, optim::RMSpropOptions().momentum(0.9).centered(true))),
              3);
    const auto unknown = account_after_a_step<optim::LBFGS>(group, optim::LBFGSOptions(0.1).max_iter(1));
    EXPECT_FALSE(unknown.is_optimizer_known);
    EXPECT_EQ(sum_over(unknown, &Counted::num_optimizer_bytes), 0u);
    const auto report = memory_report(unknown, group);
    EXPECT_TRUE(report.ends_with("\n  without the optimizer's state, since its type is unknown\n")) << report;
  });
}

}  // namespace
}  // namespace cohort::fsdp
