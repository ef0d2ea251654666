#include "cohort/extras/models/small_models.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cstdint>

namespace cohort::models {
namespace {

torch::nn::Conv2d make_padded_convolution(int64_t in, int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
}

// Maps pixels to `width` features. Here and below, layers are made in their order, so that random numbers are drawn in that
// order.
torch::nn::Sequential make_small_features(int64_t width) {
  torch::nn::Sequential features;
  features->push_back(make_padded_convolution(3, width / 2));
  features->push_back(torch::nn::ReLU());
  features->push_back(torch::nn::MaxPool2d(2));
  features->push_back(make_padded_convolution(width / 2, width));
  features->push_back(torch::nn::ReLU());
  features->push_back(torch::nn::AdaptiveAvgPool2d(1));
  features->push_back(torch::nn::Flatten());
  return features;
}

}  // namespace

void SimpleModelImpl::reset() {
  net = register_module("net", torch::nn::Sequential());
  net->push_back(torch::nn::Linear(128, 256));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Linear(256, 256));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Linear(256, 10));
}

void ToyModelImpl::reset() {
  net1 = register_module("net1", torch::nn::Linear(10, 10));
  net2 = register_module("net2", torch::nn::Linear(10, 5));
}

at::Tensor ToyModelImpl::forward(const at::Tensor& x) { return net2(net1(x).relu()); }

void ToyMpModelImpl::reset() {
  net1 = register_module("net1", torch::nn::Linear(10, 10));
  net2 = register_module("net2", torch::nn::Linear(10, 5));
  net1->to(first_);
  net2->to(second_);
}

at::Tensor ToyMpModelImpl::forward(const at::Tensor& x) { return net2(net1(x.to(first_)).relu().to(second_)); }

void ImageClassifierImpl::reset() {
  features = register_module("features", make_small_features(64));
  classifier = register_module("classifier", torch::nn::Linear(64, 10));
}

void TrainModelImpl::reset() {
  net = register_module("net", make_small_features(128));
  net->push_back(torch::nn::Linear(128, 10));
}

}  // namespace cohort::models
