#include "cohort/extras/models/resnet.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
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
  ResNet model = resnet18();
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

TEST(ResNet, GivesFeaturesWithoutClasses) {
  const at::NoGradGuard no_grad;
  const at::Tensor images = at::randn({2, 3, 64, 64});
  ResNet model = resnet50({.num_classes = 0, .width = 8});
  EXPECT_EQ(model(images).sizes(), (at::IntArrayRef{2, 256}));
  EXPECT_EQ(model->forward_features(images).sizes(), (at::IntArrayRef{2, 256, 2, 2}));
  EXPECT_FALSE(model->fc);
}

TEST(ResNet, ResetClassifierMakesANewOne) {
  const at::NoGradGuard no_grad;
  ResNet model = resnet18({.num_classes = 10, .width = 8});
  model->to(at::kDouble);
  model->eval();
  model->reset_classifier(3);
  EXPECT_EQ(model(at::randn({2, 3, 32, 32}, at::kDouble)).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_FALSE(model->fc->is_training());
  EXPECT_EQ(model->named_parameters()["fc.weight"].sizes(), (at::IntArrayRef{3, 64}));
  model->reset_classifier(0);
  EXPECT_FALSE(model->named_parameters().contains("fc.weight"));
  model->reset_classifier(5);
  const auto copy = std::dynamic_pointer_cast<ResNetImpl>(model->clone());
  EXPECT_EQ(copy->fc->weight.sizes(), (at::IntArrayRef{5, 64}));
}

TEST(ResNet, DropoutActsOnlyInTraining) {
  ResNet model = resnet18({.num_classes = 10, .width = 8, .is_small_input = true, .drop_rate = 0.5});
  const at::Tensor images = at::randn({4, 3, 16, 16});
  EXPECT_FALSE(at::equal(model(images), model(images)));
  model->eval();
  EXPECT_TRUE(at::equal(model(images), model(images)));
}

TEST(ResNet, CloneHasValuesOfItsOwn) {
  ResNet model = resnet50d({.num_classes = 3, .width = 8});
  const auto copy = std::dynamic_pointer_cast<ResNetImpl>(model->clone());
  const auto ours = model->named_parameters(), theirs = copy->named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  for (const auto& item : ours) {
    EXPECT_TRUE(at::equal(item.value(), theirs[item.key()])) << item.key();
    EXPECT_FALSE(item.value().is_alias_of(theirs[item.key()])) << item.key();
  }
  const at::NoGradGuard no_grad;
  model->eval();
  copy->eval();
  const at::Tensor images = at::randn({1, 3, 32, 32});
  EXPECT_TRUE(at::equal(model->forward(images), copy->forward(images)));
}

template <typename Fn>
std::string resnet_error(Fn fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(ResNet, WrongArgumentsMessages) {
  EXPECT_EQ(
      resnet_error([] { resnet18({.num_classes = -1}); }),
      "[cohort] ResNet: num_classes must not be negative, got -1\n  hint: use 0 for a model without a classifier");
  EXPECT_EQ(resnet_error([] { resnet18({.in_channels = 0}); }),
            "[cohort] ResNet: in_channels must be at least 1, got 0");
  EXPECT_EQ(resnet_error([] { resnet18({.drop_rate = -0.1}); }),
            "[cohort] ResNet: drop_rate must be in [0, 1), got -0.1");
  EXPECT_EQ(resnet_error([] { resnet50d({.width = 9}); }),
            "[cohort] ResNet: width must be even in a \"d\" variant, whose first convolution has half as many "
            "channels, got 9");
  EXPECT_EQ(resnet_error([] { resnext50_32x4d({.width = 8}); }),
            "[cohort] ResNet: width * base_width must be at least 64, got 8 * 4");
  EXPECT_EQ(resnet_error([] {
              ResNet(ResNetOptions{.blocks = {2, 0, 2, 2}});
            }),
            "[cohort] ResNet: every stage needs a block or more, got 0");
  EXPECT_EQ(resnet_error([] { ResNet(ResNetOptions{.cardinality = 2}); }),
            "[cohort] ResNet: cardinality and base_width are for blocks of kind kBottleneck");
  EXPECT_EQ(resnet_error([] {
              resnet18({.width = 8})->forward(at::zeros({1, 1, 32, 32}));
            }),
            "[cohort] ResNet: forward needs images [batch, 3, height, width], got [1, 1, 32, 32]");
}

}  // namespace
}  // namespace cohort::models
