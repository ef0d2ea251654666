// Against Python's numbers: tests/e2e/parallel/optim_test.py.
#include "cohort/parallel/optim/post_local_sgd_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::optim {
namespace {

struct LocalTraining {
  LocalTraining(int rank, const Group& group)
      : weight(at::full({2}, static_cast<double>(rank)).set_requires_grad(true)),
        local({weight}, torch::optim::SGDOptions(0.5).momentum(0.5)),
        averager(/*period=*/2, /*warmup_steps=*/1, group),
        optimizer(local, averager) {}

  void train(int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      optimizer.zero_grad();
      (weight * weight).sum().backward();
      optimizer.step();
    }
  }

  at::Tensor weight;
  torch::optim::SGD local;
  PeriodicModelAverager averager;
  PostLocalSGDOptimizer optimizer;
};

TEST(PostLocalSgd, StepsLocallyAndAveragesWhenTheAveragerSaysSo) {
  test::run_rank_threads(2, [](int rank, const Group& group) {
    LocalTraining training(rank, group);
    training.train(1);
    REQUIRE(at::equal(training.weight.detach(), at::zeros({2})));
    training.weight.detach().fill_(rank);
    training.train(1);  // momentum: 0.5 * 2 * rank, gradient 2 * rank; then the mean of 0 and 1 - 0.5 * 3
    REQUIRE(at::equal(training.weight.detach(), at::full({2}, -0.25)));
    REQUIRE(training.averager.step == 2);
    training.optimizer.zero_grad();
    REQUIRE(!training.weight.grad().defined());
  });
}

TEST(PostLocalSgd, GoesOnAfterSaveAndLoadAsIfNothingHadHappened) {
  test::run_rank_threads(2, [](int rank, const Group& group) {
    LocalTraining uninterrupted(rank, group);
    uninterrupted.train(6);

    LocalTraining before(rank, group);
    before.train(3);
    std::stringstream file;
    torch::save(before.optimizer, file);
    LocalTraining after(rank, group);
    after.weight.detach().copy_(before.weight.detach());
    torch::load(after.optimizer, file);
    REQUIRE(after.averager.step == 3);
    after.train(3);
    REQUIRE(at::equal(after.weight, uninterrupted.weight));
    REQUIRE(after.averager.step == 6);
  });
}

TEST(PostLocalSgd, AStateWithoutAStepMessage) {
  test::run_rank_threads(1, [](int rank, const Group& group) {
    LocalTraining training(rank, group);
    training.train(3);
    std::stringstream file;
    torch::save(training.local, file);
    testing::internal::CaptureStderr();
    torch::load(training.optimizer, file);
    REQUIRE_EQUAL(testing::internal::GetCapturedStderr(),
                  "[cohort] warning: Loaded state dict does not contain a step counter for an averager. Setting step "
                  "counter to 0.\n");
    REQUIRE(training.averager.step == 0);
  });
}

TEST(PostLocalSgd, ParameterGroupsAreTheLocalOptimizers) {
  test::run_rank_threads(1, [](int rank, const Group& group) {
    LocalTraining training(rank, group);
    const auto late = at::full({2}, 4.0).set_requires_grad(true);
    training.optimizer.add_param_group(torch::optim::OptimizerParamGroup({late}));
    REQUIRE(training.local.param_groups().size() == 2);
    late.sum().backward();
    training.optimizer.step();
    REQUIRE(at::equal(late.detach(), at::full({2}, 3.5)));
  });
}

}  // namespace
}  // namespace cohort::optim
