#include "cohort/extras/models/channels_last.h"

#include <gtest/gtest.h>

#include "cohort/extras/models/resnet.h"

namespace cohort::models {
namespace {

TEST(ChannelsLast, KeepsValuesAndParameters) {
  torch::manual_seed(0);
  ResNet model = resnet18({.num_classes = 4, .width = 8});
  const at::Tensor before = model->layers[1]->parameters().front();
  const at::Tensor values = before.detach().clone();
  to_channels_last(*model);
  const at::Tensor after = model->layers[1]->parameters().front();
  EXPECT_TRUE(after.is_same(before));
  EXPECT_TRUE(after.is_contiguous(at::MemoryFormat::ChannelsLast) && !after.is_contiguous());
  EXPECT_TRUE(at::equal(after, values));
  EXPECT_TRUE(after.is_leaf() && after.requires_grad());
  EXPECT_TRUE(model->fc->weight.is_contiguous());
}

TEST(ChannelsLast, GoesThroughAWholePass) {
  torch::manual_seed(0);
  ResNet model = resnet50d({.num_classes = 4, .width = 8});
  const at::Tensor images = at::randn({2, 3, 64, 64});
  model->eval();
  const at::Tensor expected = model(images);
  to_channels_last(*model);
  const at::Tensor laid_out = images.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(model->forward_features(laid_out).is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor actual = model(laid_out);
  EXPECT_TRUE(at::allclose(actual, expected, 1e-4, 1e-5));
  actual.sum().backward();
  EXPECT_TRUE(model->deep_conv1->parameters().front().grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace
}  // namespace cohort::models
