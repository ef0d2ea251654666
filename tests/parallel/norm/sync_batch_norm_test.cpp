// SyncBatchNorm beside batch norm of the joined batch.
#include "cohort/parallel/norm/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <sstream>

#include "cohort/comm/call/purpose.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/precision/autocast.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/parallel/norm/sync_batches.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::SyncCase;
using testing::HasSubstr;

SyncBatchNormOptions in_group(SyncBatchNormOptions options, const Group& group) {
  options.process_group = group;
  return options;
}

void expect_joint(const SyncCase& c) {
  run_rank_threads(static_cast<int>(c.rows.size()), [&](int rank, const Group& group) {
    SyncBatchNorm norm(c.shape[0], in_group(c.options, group));
    test::require_joint(c, test::run_share(c, *norm, rank), rank, group);
  });
}

TEST(SyncBatchNorm, EqualsBatchNormOfTheJoinedBatchOfTwoToFiveDimensions) {
  expect_joint({.shape = {4}});
  expect_joint({.shape = {4, 3}});
  expect_joint({.shape = {4, 3, 2}});
  expect_joint({.shape = {4, 3, 2, 2}});
}

TEST(SyncBatchNorm, UnevenAndEmptyBatches) {
  expect_joint({.rows = {5, 1, 3}});
  expect_joint({.rows = {4, 0, 2}});
  expect_joint({.rows = {0, 2}, .shape = {4}, .tolerance = 2e-5});  // variances of two values may be small
  expect_joint({.rows = {0, 3}, .shape = {4, 2, 2}, .options = {.affine = false}});
}

TEST(SyncBatchNorm, OneValuePerChannelOnARank) { expect_joint({.rows = {1, 1, 2}, .shape = {4}}); }

TEST(SyncBatchNorm, KeepsChannelsLast) {
  expect_joint({.rows = {2, 3}, .shape = {4, 3, 2}, .format = at::MemoryFormat::ChannelsLast});
  expect_joint({.rows = {2, 0}, .shape = {4, 3, 2}, .format = at::MemoryFormat::ChannelsLast});
  expect_joint({.rows = {2, 3}, .shape = {4, 3, 2, 2}, .format = at::MemoryFormat::ChannelsLast3d});
}

TEST(SyncBatchNorm, WithItsOptions) {
  expect_joint({.options = {.eps = 0.1, .momentum = 0.3}});
  expect_joint({.options = {.momentum = std::nullopt}, .num_steps = 3});
  expect_joint({.options = {.affine = false}});
  expect_joint({.options = {.track_running_stats = false}});
  expect_joint({.options = {.bias = false}});
  expect_joint({.dtype = at::kDouble, .options = {.dtype = at::kDouble}, .tolerance = 1e-12});
}

TEST(SyncBatchNorm, StatisticsOfSixteenBitsAreFloat) {
  // A rounded output or gradient is off by at most half of the last of 8 or 11 bits.
  expect_joint({.rows = {20, 30}, .shape = {4, 5}, .dtype = at::kBFloat16, .offset = 8, .tolerance = 5e-3});
  expect_joint({.rows = {20, 30}, .shape = {4, 5}, .dtype = at::kHalf, .offset = 8, .tolerance = 6e-4});
}

TEST(SyncBatchNorm, OfALargeMeanLosesNoMoreThanBatchNormDoes) {
  expect_joint({.rows = {20, 30}, .shape = {4, 5}, .offset = 1000, .tolerance = 5e-4});
}

TEST(SyncBatchNorm, ParametersOfSixteenBits) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const SyncCase c{.dtype = at::kBFloat16, .tolerance = 2e-2};
    SyncBatchNorm norm(4, in_group({.dtype = at::kBFloat16}, group));
    const auto result = test::run_share(c, *norm, rank);
    REQUIRE(result.buffers[0].scalar_type() == at::kBFloat16);
    REQUIRE(result.parameter_gradients[0].scalar_type() == at::kBFloat16);
    test::require_joint(c, result, rank, group);
  });
}

TEST(SyncBatchNorm, BatchesWithoutAValueAnywhereMoveNothing) {
  run_rank_threads(2, [](int, const Group& group) {
    SyncBatchNorm norm(4, in_group({}, group));
    const auto y = norm(torch::empty({0, 4, 3}, at::requires_grad()));
    y.sum().backward();
    REQUIRE(norm->running_mean.equal(at::zeros({4})));
    REQUIRE(norm->running_var.equal(at::ones({4})));
    REQUIRE(norm->weight.grad().equal(at::zeros({4})));
  });
}

TEST(SyncBatchNorm, OneValueOfAllRanksHasNoVariance) {
  run_rank_threads(2, [](int rank, const Group& group) {
    SyncBatchNorm norm(4, in_group({.momentum = 0.5}, group));
    const auto input = torch::full({rank, 4}, 3.0, at::requires_grad());
    norm(input).sum().backward();
    REQUIRE(norm->running_mean.equal(at::full({4}, 1.5)));
    REQUIRE(norm->running_var.equal(at::ones({4})));
    REQUIRE(input.grad().equal(at::zeros({rank, 4})));
  });
}

TEST(SyncBatchNorm, AmongTheRanksOfItsGroup) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto pair = test::split_rank_threads(group, {{0, 1}, {2, 3}});
    const SyncCase c{.rows = {1, 4}};
    SyncBatchNorm norm(4, in_group({}, pair));
    test::require_joint(c, test::run_share(c, *norm, rank % 2), rank % 2, pair);
  });
}

// Whatever is no training: on one rank alone, which would wait for the other.
TEST(SyncBatchNorm, InEvaluationARankIsAlone) {
  run_rank_threads(2, [](int rank, const Group& group) {
    if (rank == 1) return;
    const auto x = at::randn({3, 4, 2});
    for (const bool tracks : {true, false}) {
      SyncBatchNorm norm(4, in_group({.track_running_stats = tracks}, group));
      norm->eval();
      const auto expected = at::batch_norm(x, norm->weight, norm->bias, norm->running_mean, norm->running_var,
                                           /*training=*/!tracks, 0.1, 1e-5, false);
      REQUIRE(norm(x).equal(expected));
    }
  });
}

TEST(SyncBatchNorm, AloneItIsBatchNorm) {
  const auto x = at::randn({3, 4, 2, 2});
  const auto expect_plain = [&](const Group& group) {
    SyncBatchNorm ours(4, in_group({}, group));
    torch::nn::BatchNorm2d theirs(4);
    REQUIRE(ours(x).equal(theirs(x)));
    REQUIRE(ours->running_var.equal(theirs->running_var));
    REQUIRE(ours->num_batches_tracked.equal(theirs->num_batches_tracked));
  };
  expect_plain({});
  run_rank_threads(1, [&](int, const Group& group) { expect_plain(group); });
}

TEST(SyncBatchNorm, FrozenPartsHaveNoGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    SyncBatchNorm norm(4, in_group({}, group));
    norm->weight.set_requires_grad(false);
    const auto input = test::drawn({}, rank, 0, 0);  // requires none, on both ranks: no sums are exchanged
    norm(input).sum().backward();
    REQUIRE(!norm->weight.grad().defined());
    REQUIRE(norm->bias.grad().equal(at::full({4}, input.numel() / 4)));
  });
}

TEST(SyncBatchNorm, UnderAutocastItTakesWhatTheLayerBeforeGives) {
  run_rank_threads(2, [](int rank, const Group& group) {
    SyncBatchNorm norm(4, in_group({}, group));
    const Autocast autocast(at::kCPU);
    const auto low = at::matmul(test::drawn({.shape = {4}}, rank, 0, 0), at::eye(4));
    REQUIRE(low.scalar_type() == at::kBFloat16 && norm(low).scalar_type() == at::kBFloat16);
    REQUIRE(norm->running_mean.scalar_type() == at::kFloat);
  });
}

TEST(SyncBatchNorm, IsClonedWithItsGroupAndSaysWhatItIs) {
  run_rank_threads(2, [](int, const Group& group) {
    SyncBatchNorm norm(4, in_group({.momentum = std::nullopt, .bias = false}, group));
    const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
    REQUIRE(copy->options.process_group == group && !copy->weight.is_same(norm->weight));
    std::ostringstream text;
    text << *copy;
    REQUIRE_EQUAL(text.str(),
                  "cohort::SyncBatchNorm(4, eps=1e-05, momentum=None, affine=true, bias=false, "
                  "track_running_stats=true)");
  });
}

TEST(SyncBatchNorm, InputsThatItDoesNotTakeMessage) {
  SyncBatchNorm norm(4);
  EXPECT_EQ(error_of([&] { norm(at::ones({4})); }), "expected at least 2D input (got 1D input)");
  EXPECT_EQ(error_of([&] { norm(at::ones({2, 0})); }), "SyncBatchNorm number of input channels should be non-zero");
  EXPECT_EQ(error_of([&] {
              norm(at::ones({1, 4}));
            }),
            "Expected more than 1 value per channel when training, got input size [1, 4]");
}

TEST(SyncBatchNorm, SecondDerivativesMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    SyncBatchNorm norm(4, in_group({}, group));
    const auto x = test::drawn({}, rank, 0, 0).requires_grad_();
    const auto y = norm(x).square().sum();
    REQUIRE_EQUAL(error_of([&] { torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); }),
                  "[cohort] SyncBatchNorm has no second derivatives\n  hint: call backward() without create_graph");
  });
}

struct ConvNetImpl : torch::nn::Module {
  explicit ConvNetImpl(const Group& group) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).bias(false)));
    norm = register_module("norm", SyncBatchNorm(4, in_group({}, group)));
    head = register_module("head", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(norm(conv(x)).relu_().mean({2, 3})); }
  torch::nn::Conv2d conv{nullptr};
  SyncBatchNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ConvNet);

std::vector<at::Tensor> train_convnet(ConvNet& net, const std::function<at::Tensor(int)>& loss) {
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    loss(step).backward();
    optimizer.step();
  }
  auto trained = net->parameters();
  for (const auto& buffer : net->buffers()) trained.push_back(buffer);
  return trained;
}

TEST(SyncBatchNorm, RanksUnderDdpTrainAsOneProcessOnTheJoinedBatch) {
  const auto batch = [](int rank, int step) {
    return test::drawn({.rows = {4, 4}, .shape = {2, 6, 6}}, rank, step, 0);
  };
  const auto loss_of = [](const at::Tensor& y) { return y.square().mean() - y.mean(); };
  auto alone = test::seeded_net<ConvNet>(Group());
  const auto expected = train_convnet(alone, [&](int step) {
    return loss_of(alone(at::cat({batch(0, step), batch(1, step)})));
  });
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto net = test::seeded_net<ConvNet>(group);
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto trained = train_convnet(net, [&](int step) { return loss_of(ddp(batch(rank, step))); });
    for (size_t i = 0; i < expected.size(); ++i) test::require_close(trained[i], expected[i], 1e-5);
  });
}

COHORT_WORKER(normalizes_unevenly) {
  init_process_group({.backend = "shm"});
  SyncBatchNorm norm(4);
  test::print_error([&] {
    if (get_rank() == 0) norm(at::ones({2, 4}));
    barrier();
  });
}

TEST(SyncBatchNormErrors, ARankThatDoesNotComeMessage) {
  const auto results = test::run_workers("normalizes_unevenly");
  EXPECT_THAT(results[0].output, HasSubstr("which is SyncBatchNorm's exchange of sums in a forward or backward pass"));
  EXPECT_THAT(results[0].output, HasSubstr(comm::kUnevenStepsHint));
}

}  // namespace
}  // namespace cohort
