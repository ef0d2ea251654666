// Models whose batch norms become synchronized ones, wherever they are.
#include "cohort/parallel/norm/convert_sync_batch_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/norm/sync_batch_norm.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/parallel/norm/sync_batches.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::SyncCase;

template <class Norm>
void expect_converted_joint(const SyncCase& c, Norm (*make)(const torch::nn::BatchNormOptions&)) {
  run_rank_threads(static_cast<int>(c.rows.size()), [&](int rank, const Group& group) {
    auto norm = convert_sync_batchnorm(make(torch::nn::BatchNormOptions(c.shape[0])
                                                .eps(c.options.eps)
                                                .momentum(c.options.momentum)
                                                .affine(c.options.affine)
                                                .track_running_stats(c.options.track_running_stats)),
                                       group);
    test::require_joint(c, test::run_share(c, *norm, rank), rank, group);
  });
}

template <class Norm>
Norm made(const torch::nn::BatchNormOptions& options) {
  return Norm(options);
}

TEST(ConvertSyncBatchNorm, LayersOfEveryNumberOfDimensions) {
  expect_converted_joint({.shape = {4}}, made<torch::nn::BatchNorm1d>);
  expect_converted_joint({.rows = {5, 1, 3}}, made<torch::nn::BatchNorm1d>);
  expect_converted_joint({.shape = {4, 3, 2}, .format = at::MemoryFormat::ChannelsLast}, made<torch::nn::BatchNorm2d>);
  expect_converted_joint({.rows = {0, 2}, .shape = {4, 3, 2, 2}}, made<torch::nn::BatchNorm3d>);
}

TEST(ConvertSyncBatchNorm, LayersOfAllOptions) {
  expect_converted_joint({.options = {.eps = 0.1, .momentum = std::nullopt}}, made<torch::nn::BatchNorm1d>);
  expect_converted_joint({.options = {.affine = false}}, made<torch::nn::BatchNorm1d>);
  expect_converted_joint({.options = {.track_running_stats = false}}, made<torch::nn::BatchNorm1d>);
  expect_converted_joint({.options = {.affine = false, .track_running_stats = false}}, made<torch::nn::BatchNorm1d>);
}

// As users write them: a member, layers in containers, one in an AnyModule, and one that is synchronized already.
struct UserNetImpl : torch::nn::Module {
  UserNetImpl() {
    bn1 = register_module("bn1", torch::nn::BatchNorm1d(3));
    layers = register_module("layers", torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3)));
    list = register_module("list", torch::nn::ModuleList(torch::nn::BatchNorm1d(3)));
    any = torch::nn::AnyModule(torch::nn::BatchNorm1d(3));
    register_module("any", any.ptr());
    last = register_module("last", SyncBatchNorm(3));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = layers->forward(bn1(x).pow(3));
    y = list[0]->as<torch::nn::BatchNorm1d>()->forward(y.pow(3));
    return last(any.forward(y.pow(3)).pow(3));
  }
  torch::nn::BatchNorm1d bn1{nullptr};
  torch::nn::Sequential layers{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::AnyModule any;
  SyncBatchNorm last{nullptr};
};
TORCH_MODULE(UserNet);

at::Tensor user_batch(int rank) { return test::drawn({.rows = {3, 5}, .shape = {3}}, rank, 0, rank); }

TEST(ConvertSyncBatchNorm, AnUnmodifiedModelAsItStands) {
  auto alone = test::seeded_net<UserNet>();
  const auto expected = alone(at::cat({user_batch(0), user_batch(1)})).detach();
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto net = test::seeded_net<UserNet>();
    if (rank == 0) REQUIRE(!net(user_batch(0)).allclose(expected.narrow(0, 0, 3)));
    auto converted = convert_sync_batchnorm(test::seeded_net<UserNet>(), group);
    test::require_close(converted(user_batch(rank)), expected.narrow(0, rank == 0 ? 0 : 3, rank == 0 ? 3 : 5), 1e-4);
    REQUIRE(converted->named_parameters().keys() == net->named_parameters().keys());
    REQUIRE(converted->named_buffers().keys() == net->named_buffers().keys());
  });
}

TEST(ConvertSyncBatchNorm, EvaluationAndOtherLayersStayAlone) {
  run_rank_threads(2, [](int rank, const Group& group) {
    if (rank == 1) return;
    const auto x = test::drawn({}, 0, 0, 0);
    for (const bool tracks : {true, false}) {
      for (const bool affine : {true, false}) {
        const auto options = torch::nn::BatchNormOptions(4).affine(affine).track_running_stats(tracks);
        auto norm = convert_sync_batchnorm(torch::nn::BatchNorm1d(options), group);
        torch::nn::BatchNorm1d other(options);
        norm->eval();
        other->eval();
        REQUIRE(norm(x).equal(other(x)));
        other->train();
        REQUIRE(other(x).defined());
      }
    }
  });
}

TEST(ConvertSyncBatchNorm, StaysSoInAnotherDtype) {
  for (const bool affine : {true, false}) {
    run_rank_threads(2, [affine](int rank, const Group& group) {
      const SyncCase c{.dtype = at::kDouble, .options = {.affine = affine}, .tolerance = 1e-12};
      auto norm = convert_sync_batchnorm(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).affine(affine)), group);
      norm->to(at::kDouble);
      test::require_joint(c, test::run_share(c, *norm, rank), rank, group);
    });
  }
}

TEST(ConvertSyncBatchNorm, AgainForAnotherGroup) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto alone = test::split_rank_threads(group, {{0}, {1}});
    for (const bool affine : {true, false}) {
      const SyncCase c{.options = {.affine = affine, .track_running_stats = false}};
      auto norm = convert_sync_batchnorm(
          torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).affine(affine).track_running_stats(false)), alone);
      torch::nn::BatchNorm1d plain(norm->options);
      REQUIRE(norm(test::drawn(c, rank, 0, 0)).equal(plain(test::drawn(c, rank, 0, 0))));
      convert_sync_batchnorm(*norm, group);
      test::require_joint(c, test::run_share(c, *norm, rank), rank, group);
    }
    SyncBatchNorm ours(4);
    convert_sync_batchnorm(*ours, group);
    REQUIRE(ours->options.process_group == group);
  });
}

TEST(ConvertSyncBatchNorm, ACloneIsPlain) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto norm = convert_sync_batchnorm(torch::nn::BatchNorm1d(4), group);
    REQUIRE(norm::has_sync_batch_norm(*norm));
    REQUIRE(!norm::has_sync_batch_norm(*norm->clone()));
    if (rank == 0)
      std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(norm->clone())->forward(test::drawn({}, 0, 0, 0));
  });
}

struct LowNetImpl : torch::nn::Module {
  LowNetImpl() { norm = register_module("norm", torch::nn::BatchNorm1d(4)); }
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(LowNet);

TEST(ConvertSyncBatchNorm, UnderDdpInAnotherPrecision) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const SyncCase c{.tolerance = 2e-2, .num_steps = 1};
    auto net = convert_sync_batchnorm(LowNet(), group);
    ddp::Options options{.process_group = group};
    options.mixed_precision = ddp::MixedPrecision{.param_dtype = at::kBFloat16, .buffer_dtype = at::kBFloat16};
    DistributedDataParallel ddp(net, options);
    REQUIRE(ddp->ddp_logging_data().ints_map.at("has_sync_bn") == 1);
    for (int step = 0; step < 2; ++step) {
      net->norm->running_mean.zero_();
      ddp(test::drawn(c, rank, 0, c.offset)).sum().backward();
    }
    auto expected = test::of_the_joined_batch(c).buffers[0];
    test::require_close(net->norm->running_mean, expected, c.tolerance);
    REQUIRE(net->norm->weight.scalar_type() == at::kFloat);
  });
}

TEST(ConvertSyncBatchNorm, UnderFullyShard) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const SyncCase c{.num_steps = 1};
    for (const bool one_memory : {true, false}) {
      auto net = convert_sync_batchnorm(LowNet(), group);
      auto model = fully_shard(net, {.process_group = group, .one_memory = one_memory});
      model(test::drawn(c, rank, 0, c.offset)).sum().backward();
      test::require_close(net->norm->running_mean, test::of_the_joined_batch(c).buffers[0], c.tolerance);
    }
  });
}

TEST(ConvertSyncBatchNorm, ALayerThatNobodyOwnsMessage) {
  torch::nn::BatchNorm1dImpl norm(4);
  EXPECT_EQ(error_of([&] { convert_sync_batchnorm(norm); }),
            "[cohort] convert_sync_batchnorm: the module cannot be converted, since no std::shared_ptr owns it\n"
            "  hint: make it with its holder, such as torch::nn::BatchNorm2d, or with std::make_shared");
}

}  // namespace
}  // namespace cohort
