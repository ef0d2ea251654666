#include "cohort/extras/models/small_models.h"

#include <gtest/gtest.h>

#include <memory>

namespace cohort::models {
namespace {

TEST(SmallModels, HaveTheTutorialsShapes) {
  const at::NoGradGuard no_grad;
  EXPECT_EQ(SimpleModel()->forward(at::randn({2, 128})).sizes(), (at::IntArrayRef{2, 10}));
  EXPECT_EQ(ToyModel()->forward(at::randn({2, 10})).sizes(), (at::IntArrayRef{2, 5}));
  EXPECT_EQ(ImageClassifier()->forward(at::randn({2, 3, 32, 32})).sizes(), (at::IntArrayRef{2, 10}));
  EXPECT_EQ(TrainModel()->forward(at::randn({2, 3, 28, 20})).sizes(), (at::IntArrayRef{2, 10}));
}

TEST(SmallModels, ToyMpModelIsToyModelOnItsDevices) {
  torch::manual_seed(0);
  ToyModel whole;
  torch::manual_seed(0);
  ToyMpModel divided{c10::Device(at::kCPU), c10::Device(at::kCPU)};
  const at::Tensor x = at::randn({3, 10});
  EXPECT_TRUE(at::equal(divided->forward(x), whole->forward(x)));
}

TEST(SmallModels, ClonesHaveValuesOfTheirOwn) {
  ImageClassifier model;
  const auto copy = std::dynamic_pointer_cast<ImageClassifierImpl>(model->clone());
  const at::NoGradGuard no_grad;
  const at::Tensor images = at::randn({1, 3, 8, 8});
  EXPECT_TRUE(at::equal(model->forward(images), copy->forward(images)));
  copy->classifier->bias.add_(1);
  EXPECT_FALSE(at::equal(model->forward(images), copy->forward(images)));
}

}  // namespace
}  // namespace cohort::models
