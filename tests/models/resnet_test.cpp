#include "cohort/models/resnet.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <map>
#include <string>

namespace cohort::models {
namespace {

int64_t count_parameters(const ResNet& model) {
  int64_t count = 0;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  return count;
}

TEST(ResNet, HasTorchvisionsSizes) {
  EXPECT_EQ(count_parameters(resnet18()), 11689512);
  EXPECT_EQ(count_parameters(resnet34()), 21797672);
  EXPECT_EQ(resnet18()->parameters().size(), 62u);
}

TEST(ResNet, HasTorchvisionsNamesAndShapes) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const ResNet model = resnet18();
  for (const auto& item : model->named_parameters()) shapes[item.key()] = item.value().sizes().vec();
  for (const auto& item : model->named_buffers()) shapes[item.key()] = item.value().sizes().vec();
  const std::map<std::string, std::vector<int64_t>> expected = {{"conv1.weight", {64, 3, 7, 7}},
                                                                {"bn1.running_mean", {64}},
                                                                {"bn1.num_batches_tracked", {}},
                                                                {"layer1.0.conv1.weight", {64, 64, 3, 3}},
                                                                {"layer1.1.bn2.bias", {64}},
                                                                {"layer2.0.conv1.weight", {128, 64, 3, 3}},
                                                                {"layer2.0.downsample.0.weight", {128, 64, 1, 1}},
                                                                {"layer2.0.downsample.1.running_var", {128}},
                                                                {"layer4.1.conv2.weight", {512, 512, 3, 3}},
                                                                {"fc.weight", {1000, 512}},
                                                                {"fc.bias", {1000}}};
  for (const auto& [name, shape] : expected) {
    ASSERT_TRUE(shapes.contains(name)) << name;
    EXPECT_EQ(shapes[name], shape) << name;
  }
  EXPECT_FALSE(shapes.contains("layer1.0.downsample.0.weight"));
}

TEST(ResNet, GivesOneScorePerClass) {
  const at::NoGradGuard no_grad;
  ResNet small = resnet18({.num_classes = 10, .width = 8, .is_small_input = true});
  EXPECT_EQ(small(at::randn({2, 3, 32, 32})).sizes(), (at::IntArrayRef{2, 10}));
  ResNet large = resnet18({.num_classes = 7, .width = 8});
  EXPECT_EQ(large(at::randn({2, 3, 64, 64})).sizes(), (at::IntArrayRef{2, 7}));
}

TEST(ResNet, LearnsABatch) {
  torch::manual_seed(0);
  ResNet model = resnet18({.num_classes = 4, .width = 8, .is_small_input = true});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const at::Tensor images = at::randn({8, 3, 16, 16}), labels = at::arange(8, at::kLong) % 4;
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 15; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model(images), labels);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, 0.3 * first);
}

TEST(ResNet, WrongArgumentsMessage) {
  try {
    resnet18({.num_classes = 0});
    FAIL() << "no error";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "ResNet: num_classes must be at least 1, got 0");
  }
}

}  // namespace
}  // namespace cohort::models
