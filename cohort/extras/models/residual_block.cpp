#include "cohort/extras/models/residual_block.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "cohort/extras/models/convolution.h"

namespace cohort::models {
namespace {

// Returns null if the input can be added unchanged.
torch::nn::Sequential make_downsample(const ResidualBlockOptions& options, int64_t out_channels) {
  const int64_t in = options.in_channels, stride = options.stride;
  if (stride == 1 && in == out_channels) return nullptr;
  torch::nn::Sequential downsample;
  if (options.has_average_downsample) {
    if (stride == 1) {
      downsample->push_back(torch::nn::Identity());
    } else {
      downsample->push_back(
          torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(2).stride(stride).ceil_mode(true).count_include_pad(false)));
    }
  }
  downsample->push_back(make_convolution(in, out_channels, 1, options.has_average_downsample ? 1 : stride));
  downsample->push_back(BatchNorm2d(out_channels));
  return downsample;
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(const ResidualBlockOptions& options) : options_(options) { reset(); }

// Here and below the shortcut is made first, as in Python, so that the same random numbers give the same weights.
void BasicBlockImpl::reset() {
  const int64_t planes = options_.planes;
  downsample = make_downsample(options_, planes);
  conv1 = register_module("conv1", make_convolution(options_.in_channels, planes, 3, options_.stride));
  bn1 = register_module("bn1", BatchNorm2d(planes));
  conv2 = register_module("conv2", make_convolution(planes, planes, 3));
  bn2 = register_module("bn2", BatchNorm2d(planes));
  if (downsample) register_module("downsample", downsample);
}

void BasicBlockImpl::zero_init_last() { torch::nn::init::zeros_(bn2->weight); }

at::Tensor BasicBlockImpl::forward(const at::Tensor& x) {
  at::Tensor y = bn1(conv1(x)).relu_();
  y = bn2(conv2(y));
  return y.add_(downsample ? downsample->forward(x) : x).relu_();
}

BottleneckImpl::BottleneckImpl(const ResidualBlockOptions& options) : options_(options) { reset(); }

void BottleneckImpl::reset() {
  const int64_t groups = options_.cardinality, out = options_.planes * kExpansion;
  const int64_t inner = options_.planes * options_.base_width / 64 * groups;
  downsample = make_downsample(options_, out);
  conv1 = register_module("conv1", make_convolution(options_.in_channels, inner, 1));
  bn1 = register_module("bn1", BatchNorm2d(inner));
  conv2 = register_module("conv2", make_convolution(inner, inner, 3, options_.stride, groups));
  bn2 = register_module("bn2", BatchNorm2d(inner));
  conv3 = register_module("conv3", make_convolution(inner, out, 1));
  bn3 = register_module("bn3", BatchNorm2d(out));
  if (downsample) register_module("downsample", downsample);
}

void BottleneckImpl::zero_init_last() { torch::nn::init::zeros_(bn3->weight); }

at::Tensor BottleneckImpl::forward(const at::Tensor& x) {
  at::Tensor y = bn1(conv1(x)).relu_();
  y = bn2(conv2(y)).relu_();
  y = bn3(conv3(y));
  return y.add_(downsample ? downsample->forward(x) : x).relu_();
}

}  // namespace cohort::models
