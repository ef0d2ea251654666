#include "cohort/train/schedule.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

namespace cohort::train {
namespace {

TEST(WarmupCosine, RisesInAStraightLineThenFallsAlongACosine) {
  const WarmupCosine schedule{.peak = 1.0, .floor = 0.1, .warmup_steps = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_NEAR(schedule.at(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.at(110), 0.1, 1e-12);
  EXPECT_NEAR(schedule.at(1000), 0.1, 1e-12);
}

TEST(WarmupCosine, NeedsNoWarmup) {
  const WarmupCosine schedule{.peak = 2.0, .total_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.at(0), 2.0);
  EXPECT_NEAR(schedule.at(2), 1.0, 1e-12);
}

TEST(SetLearningRate, ReachesEveryGroup) {
  const at::Tensor a = at::zeros({1}).requires_grad_(), b = at::zeros({1}).requires_grad_();
  torch::optim::AdamW optimizer(std::vector<torch::optim::OptimizerParamGroup>{{{a}}, {{b}}},
                                torch::optim::AdamWOptions(1.0));
  set_learning_rate(optimizer, 0.25);
  for (const auto& group : optimizer.param_groups()) EXPECT_EQ(group.options().get_lr(), 0.25);
}

}  // namespace
}  // namespace cohort::train
