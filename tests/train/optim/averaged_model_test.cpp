// What AveragedModel refuses and takes. Its numbers: tests/e2e/train/averaged_model_test.py.
#include "cohort/train/optim/averaged_model.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/parallel/norm/sync_batch_norm.h"
#include "cohort/train/optim/update_bn.h"
#include "tests/data/error_text.h"
#include "tests/support/rank_threads.h"

namespace cohort::optim {
namespace {

using test::error_text;
using torch::nn::Linear;
using torch::nn::LinearOptions;

void fill(const torch::nn::Module& module, double value) {
  const c10::AutoGradMode no_grad(false);
  for (auto& parameter : module.parameters()) parameter.fill_(value);
}

TEST(AveragedModel, IsTheMeanOfTheStatesItWasGiven) {
  Linear net(2, 1);
  AveragedModel mean(net);
  for (const double value : {1.0, 2.0, 6.0}) {
    fill(*net, value);
    mean->update_parameters(*net);
  }
  EXPECT_TRUE(at::equal(mean->module().weight, at::full({1, 2}, 3.0)));
  EXPECT_TRUE(at::equal(mean(at::ones({1, 2})), at::full({1, 1}, 9.0)));
  EXPECT_EQ(mean->n_averaged().item<int64_t>(), 3);
  EXPECT_TRUE(at::equal(net->weight, at::full({1, 2}, 6.0)));
}

struct WithAverage : torch::nn::Module {
  explicit WithAverage(const Linear& net) { average = register_module("average", AveragedModel(net)); }
  AveragedModel<torch::nn::LinearImpl> average{nullptr};
};

TEST(AveragedModel, CanBeAMember) {
  Linear net(2, 1);
  WithAverage parent(net);
  EXPECT_EQ(parent.named_parameters().keys(),
            (std::vector<std::string>{"average.module.weight", "average.module.bias"}));
  EXPECT_TRUE(at::equal(parent.average(at::ones({1, 2})), net(at::ones({1, 2}))));
}

TEST(AveragedModel, DrawsNoRandomNumbers) {
  const Linear net(8, 8);
  at::manual_seed(1);
  const auto wanted = at::rand({4});
  at::manual_seed(1);
  const AveragedModel average(net);
  EXPECT_TRUE(at::equal(at::rand({4}), wanted));
  EXPECT_TRUE(at::equal(average->module().weight, net->weight));
}

struct PlainNet : torch::nn::Module {
  PlainNet() : linear(register_module("linear", Linear(2, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  Linear linear;
};

TEST(AveragedModel, OfAClassThatCannotBeCloned) {
  const auto net = std::make_shared<PlainNet>();
  net->eval();
  EXPECT_TRUE(
      error_text<c10::Error>([&] { AveragedModel<PlainNet> average(net); }).starts_with("clone() has not been"));
  AveragedModel average(net, {.copy = std::make_shared<PlainNet>()});
  EXPECT_TRUE(at::equal(average->module().linear->weight, net->linear->weight));
  EXPECT_FALSE(average->module().is_training());
  EXPECT_EQ(error_text<c10::TypeError>([&] { AveragedModel<PlainNet> other(net, {.copy = Linear(2, 2).ptr()}); }),
            "[cohort] AveragedModel: options.copy is not of the model's class");
}

struct TiedNet : torch::nn::Cloneable<TiedNet> {
  TiedNet() { TiedNet::reset(); }
  void reset() override {
    weight = register_parameter("weight", at::ones({1}));
    again = register_parameter("again", weight);
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight * again; }
  at::Tensor weight, again;
};

TEST(AveragedModel, TiedWeightsAreAveragedOnce) {
  const auto net = std::make_shared<TiedNet>();
  AveragedModel average(net, {.multi_avg_fn = get_ema_multi_avg_fn(0.5)});
  average->update_parameters(*net);
  fill(*net, 3.0);
  average->update_parameters(*net);
  EXPECT_EQ(average->module().weight.item<double>(), 2.0);
}

TEST(AveragedModel, ErrorsMessage) {
  Linear net(2, 1);
  EXPECT_EQ(error_text<c10::ValueError>([] { get_ema_multi_avg_fn(1.5); }),
            "Invalid decay value 1.5 provided. Please provide a value in [0,1] range.");
  EXPECT_EQ(error_text<c10::ValueError>(
                [&] { AveragedModel(net, {.avg_fn = get_ema_avg_fn(), .multi_avg_fn = get_ema_multi_avg_fn()}); }),
            "Only one of avg_fn and multi_avg_fn should be provided");
  AveragedModel average(net);
  EXPECT_EQ(error_text<c10::ValueError>([&] { average->update_parameters(*Linear(LinearOptions(2, 1).bias(false))); }),
            "[cohort] AveragedModel: the model has 1 parameters, but the average 2");
  EXPECT_EQ(
      error_text<c10::ValueError>([&] { average->update_parameters(*Linear(3, 1)); }),
      "[cohort] AveragedModel: number 0 of the parameters has sizes [1, 3] in the model, but [1, 2] in the average");
  EXPECT_EQ(average->n_averaged().item<int64_t>(), 0);
}

TEST(UpdateBn, OfLayersThatSeeTheBatchesOfAllRanks) {
  test::run_rank_threads(2, [](int rank, const Group& group) {
    torch::nn::Sequential net(SyncBatchNorm(2, SyncBatchNormOptions{.momentum = 0.3, .process_group = group}));
    const std::vector<at::Tensor> batches = {at::full({3, 2}, 1.0 + 2.0 * rank), at::full({3, 2}, 4.0 + 2.0 * rank)};
    update_bn(batches, net);
    const auto& layer = *net[0]->as<SyncBatchNorm>();
    EXPECT_TRUE(at::allclose(layer.running_mean, at::full({2}, 3.5)));
    EXPECT_EQ(layer.options.momentum, 0.3);
  });
}

TEST(UpdateBn, SettingsComeBackAlsoAfterAnError) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).momentum(0.3)));
  net->eval();
  const auto broken = std::vector<at::Tensor>{at::ones({4, 2}), at::ones({4, 3})};
  EXPECT_THROW(update_bn(broken, net), c10::Error);
  EXPECT_FALSE(net->is_training());
  EXPECT_EQ(net[0]->as<torch::nn::BatchNorm1d>()->options.momentum(), 0.3);
  int num_read = 0;
  struct Counting {
    int& count;
    const at::Tensor* begin() const { return ++count, nullptr; }
    const at::Tensor* end() const { return nullptr; }
  };
  Linear without(2, 2);
  update_bn(Counting{num_read}, without);
  EXPECT_EQ(num_read, 0) << "there is nothing to count";
}

}  // namespace
}  // namespace cohort::optim
