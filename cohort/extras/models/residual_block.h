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
  /// Of a Bottleneck: the groups of its 3x3 convolution, and what its inner channels are 64ths of: planes * base_width / 64,
  /// times cardinality.
  int64_t cardinality = 1;
  int64_t base_width = 64;
  /// The shortcut's stride is that of an average pool before its convolution, which then loses no pixel.
  bool has_average_downsample = false;
};

class COHORT_API BasicBlockImpl : public torch::nn::Cloneable<BasicBlockImpl> {
 public:
  static constexpr int64_t kExpansion = 1;

  explicit BasicBlockImpl(const ResidualBlockOptions& options);
  void reset() override;
  /// Where training begins, the block gives its shortcut on.
  void zero_init_last();
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  BatchNorm2d bn1{nullptr}, bn2{nullptr};
  /// Null where the input can be added as it is.
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
