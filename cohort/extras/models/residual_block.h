/// The blocks of ResNets (resnet.h), with torchvision's and timm's parameter names.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "cohort/export.h"
#include "cohort/extras/models/norm.h"

namespace cohort::models {

struct ResidualBlockOptions {
  int64_t in_channels = 64;
  /// Output channels of a BasicBlock; a Bottleneck has kExpansion times as many.
  int64_t planes = 64;
  int64_t stride = 1;
  /// For a Bottleneck: the groups of its 3x3 convolution, and the factor of its inner channels: planes * base_width / 64, times
  /// cardinality.
  int64_t cardinality = 1;
  int64_t base_width = 64;
  /// Replaces the stride of the shortcut's convolution by an average pool before it, which uses all pixels.
  bool has_average_downsample = false;
};

class COHORT_API BasicBlockImpl : public torch::nn::Cloneable<BasicBlockImpl> {
 public:
  static constexpr int64_t kExpansion = 1;

  explicit BasicBlockImpl(const ResidualBlockOptions& options);
  void reset() override;
  /// Sets the last norm to zeros, so that at the beginning of training the block returns its shortcut.
  void zero_init_last();
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  BatchNorm2d bn1{nullptr}, bn2{nullptr};
  /// Null if the input can be added unchanged.
  torch::nn::Sequential downsample{nullptr};

 private:
  ResidualBlockOptions options_;
};
TORCH_MODULE(BasicBlock);

class COHORT_API BottleneckImpl : public torch::nn::Cloneable<BottleneckImpl> {
 public:
  static constexpr int64_t kExpansion = 4;

  explicit BottleneckImpl(const ResidualBlockOptions& options);
  void reset() override;
  void zero_init_last();
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::Sequential downsample{nullptr};

 private:
  ResidualBlockOptions options_;
};
TORCH_MODULE(Bottleneck);

}  // namespace cohort::models
