/// ResNet with basic blocks (18 and 34 layers). Parameter names, shapes and initial values follow torchvision:
///     conv1.weight, bn1.weight, layer1.0.conv1.weight, layer1.0.bn1.weight, layer2.0.downsample.0.weight, fc.weight
///
///     auto model = cohort::models::resnet18({.num_classes = 10, .is_small_input = true});   // 32x32 images
///     at::Tensor scores = model(images);                                                    // [batch, 3, 32, 32]
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>

#include "cohort/export.h"

namespace cohort::models {

struct ResNetOptions {
  int64_t num_classes = 1000;
  /// Channels of the first stage; each next stage doubles them. torchvision: 64.
  int64_t width = 64;
  /// For 32x32 images: a 3x3 first convolution with stride 1 and no max-pool. Names stay the same; conv1's shape differs.
  bool is_small_input = false;
  /// Blocks per stage; {2, 2, 2, 2} is ResNet-18.
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
};

struct BasicBlockOptions {
  int64_t in_channels = 64;
  int64_t out_channels = 64;
  int64_t stride = 1;
};

class COHORT_API BasicBlockImpl : public torch::nn::Cloneable<BasicBlockImpl> {
 public:
  explicit BasicBlockImpl(const BasicBlockOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  /// Null where the input can be added as it is.
  torch::nn::Sequential downsample{nullptr};

 private:
  BasicBlockOptions options_;
};
TORCH_MODULE(BasicBlock);

class COHORT_API ResNetImpl : public torch::nn::Cloneable<ResNetImpl> {
 public:
  /// Throws c10::ValueError for counts below 1.
  explicit ResNetImpl(const ResNetOptions& options = {});
  void reset() override;

  /// `images` [batch, 3, height, width] -> scores [batch, num_classes].
  at::Tensor forward(const at::Tensor& images);
  const ResNetOptions& options() const { return options_; }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  std::array<torch::nn::Sequential, 4> layers{{{nullptr}, {nullptr}, {nullptr}, {nullptr}}};
  torch::nn::Linear fc{nullptr};

 private:
  ResNetOptions options_;
};
TORCH_MODULE(ResNet);

/// `options.blocks` is set by the name.
COHORT_API ResNet resnet18(ResNetOptions options = {});
COHORT_API ResNet resnet34(ResNetOptions options = {});

}  // namespace cohort::models
