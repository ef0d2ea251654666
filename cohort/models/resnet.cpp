#include "cohort/models/resnet.h"

#include <ATen/Functions.h>
#include <torch/nn/init.h>

#include <string>
#include <utility>

namespace cohort::models {
namespace {

torch::nn::Conv2d make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  torch::nn::Conv2d conv(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding((kernel - 1) / 2).bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
  return conv;
}

torch::nn::Sequential make_stage(int64_t in, int64_t out, int64_t stride, int64_t num_blocks) {
  torch::nn::Sequential stage;
  for (int64_t i = 0; i < num_blocks; ++i) {
    stage->push_back(BasicBlock(
        BasicBlockOptions{.in_channels = i == 0 ? in : out, .out_channels = out, .stride = i == 0 ? stride : 1}));
  }
  return stage;
}

void check_resnet_options(const ResNetOptions& options) {
  TORCH_CHECK_VALUE(options.num_classes >= 1, "ResNet: num_classes must be at least 1, got ", options.num_classes);
  TORCH_CHECK_VALUE(options.width >= 1, "ResNet: width must be at least 1, got ", options.width);
  for (const int64_t count : options.blocks) {
    TORCH_CHECK_VALUE(count >= 1, "ResNet: every stage needs a block or more, got ", count);
  }
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(const BasicBlockOptions& options) : options_(options) { reset(); }

void BasicBlockImpl::reset() {
  const int64_t in = options_.in_channels, out = options_.out_channels;
  conv1 = register_module("conv1", make_conv(in, out, 3, options_.stride));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(out));
  conv2 = register_module("conv2", make_conv(out, out, 3, 1));
  bn2 = register_module("bn2", torch::nn::BatchNorm2d(out));
  if (in != out || options_.stride != 1) {
    downsample = register_module(
        "downsample", torch::nn::Sequential(make_conv(in, out, 1, options_.stride), torch::nn::BatchNorm2d(out)));
  }
}

at::Tensor BasicBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor shortcut = downsample ? downsample->forward(x) : x;
  at::Tensor y = bn1(conv1(x)).relu_();
  y = bn2(conv2(y));
  return y.add_(shortcut).relu_();
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options) {
  check_resnet_options(options_);
  reset();
}

void ResNetImpl::reset() {
  const int64_t width = options_.width;
  conv1 = register_module("conv1", options_.is_small_input ? make_conv(3, width, 3, 1) : make_conv(3, width, 7, 2));
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(width));
  for (size_t i = 0; i < layers.size(); ++i) {
    const int64_t out = width << i;
    const int64_t in = i == 0 ? width : out / 2;
    layers[i] =
        register_module("layer" + std::to_string(i + 1), make_stage(in, out, i == 0 ? 1 : 2, options_.blocks[i]));
  }
  fc = register_module("fc", torch::nn::Linear(width << (layers.size() - 1), options_.num_classes));
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  at::Tensor x = bn1(conv1(images)).relu_();
  if (!options_.is_small_input) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (auto& layer : layers) x = layer->forward(x);
  return fc(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

ResNet resnet18(ResNetOptions options) {
  options.blocks = {2, 2, 2, 2};
  return ResNet(options);
}

ResNet resnet34(ResNetOptions options) {
  options.blocks = {3, 4, 6, 3};
  return ResNet(options);
}

}  // namespace cohort::models
