/// ResNets. Parameter names, shapes and initial values are torchvision's, and timm's for the "d" variants, so that their files
/// load (pretrained.h), and the same seed gives the same weights:
/// ```text
/// conv1.weight, bn1.weight, layer1.0.conv1.weight, layer1.0.bn1.weight, layer2.0.downsample.0.weight, fc.weight
/// conv1.0.weight, conv1.1.weight, conv1.3.weight, ... layer2.0.downsample.1.weight of a "d" variant
/// ```
///
///     auto model = cohort::models::resnet18({.num_classes = 10, .is_small_input = true});   // 32x32 images
///     at::Tensor scores = model(images);                                                    // [batch, 3, 32, 32]
///
/// Thread-safety: as any torch::nn module.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "cohort/export.h"
#include "cohort/extras/models/norm.h"
#include "cohort/extras/models/residual_block.h"
#include "cohort/models/pretrainable.h"

namespace cohort::models {

enum class ResidualBlockKind { kBasic, kBottleneck };

struct ResNetOptions {
  /// 0 means no classifier: the model returns features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Planes of the first stage; each further stage doubles them. torchvision: 64.
  int64_t width = 64;
  /// For 32x32 images: a first convolution of 3x3 with stride 1, without max-pool. Names stay the same.
  bool is_small_input = false;
  /// Dropout before the classifier.
  double drop_rate = 0.0;
  /// Initializes the last norm of every block with zeros, so that blocks begin as their shortcuts. If absent, true for "d"
  /// variants, as in timm, and false for others, as in torchvision.
  std::optional<bool> zero_init_last = {};

  /// Options that the functions below set by their names.
  ResidualBlockKind block = ResidualBlockKind::kBasic;
  /// Blocks per stage; {2, 2, 2, 2} is ResNet-18.
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
  /// See ResidualBlockOptions.
  int64_t cardinality = 1;
  int64_t base_width = 64;
  /// Replaces the first convolution by three 3x3 convolutions, and adds average pools to shortcuts.
  bool is_d_variant = false;
};

class COHORT_API ResNetImpl : public torch::nn::Cloneable<ResNetImpl>, public Pretrainable {
 public:
  /// Throws c10::ValueError for options that cannot work; the message names the option.
  explicit ResNetImpl(const ResNetOptions& options = {});
  void reset() override;

  /// `images` [batch, in_channels, height, width] -> scores [batch, num_classes], or features [batch, num_features()].
  at::Tensor forward(const at::Tensor& images);
  /// Returns the last stage's output: [batch, num_features(), height / 32, width / 32], rounded up; 8 instead of 32 for small
  /// inputs.
  at::Tensor forward_features(const at::Tensor& images);
  /// Computes the rest of forward.
  at::Tensor forward_head(const at::Tensor& features);

  /// Makes a newly initialized classifier; 0 removes it. Make optimizers and wrappers afterwards.
  void reset_classifier(int64_t num_classes);
  int64_t num_features() const;
  const ResNetOptions& options() const { return options_; }

  std::string classifier_name() const override { return "fc"; }
  void init_classifier() override;
  std::string first_convolution_name() const override { return options_.is_d_variant ? "conv1.0" : "conv1"; }

  /// One of the two is "conv1", the other is null.
  torch::nn::Conv2d conv1{nullptr};
  torch::nn::Sequential deep_conv1{nullptr};
  BatchNorm2d bn1{nullptr};
  /// "layer1" to "layer4", made of BasicBlock or Bottleneck.
  std::array<torch::nn::Sequential, 4> layers{{{nullptr}, {nullptr}, {nullptr}, {nullptr}}};
  /// Null without classes.
  torch::nn::Linear fc{nullptr};

 private:
  ResNetOptions options_;
};
TORCH_MODULE(ResNet);

COHORT_API ResNet resnet18(ResNetOptions options = {});
COHORT_API ResNet resnet34(ResNetOptions options = {});
COHORT_API ResNet resnet50(ResNetOptions options = {});
COHORT_API ResNet resnet101(ResNetOptions options = {});
COHORT_API ResNet resnet152(ResNetOptions options = {});

COHORT_API ResNet resnet18d(ResNetOptions options = {});
COHORT_API ResNet resnet34d(ResNetOptions options = {});
COHORT_API ResNet resnet50d(ResNetOptions options = {});
COHORT_API ResNet resnet101d(ResNetOptions options = {});

COHORT_API ResNet wide_resnet50_2(ResNetOptions options = {});
COHORT_API ResNet wide_resnet101_2(ResNetOptions options = {});

COHORT_API ResNet resnext50_32x4d(ResNetOptions options = {});
COHORT_API ResNet resnext101_32x8d(ResNetOptions options = {});
COHORT_API ResNet resnext101_64x4d(ResNetOptions options = {});

}  // namespace cohort::models
