/// The small models of PyTorch's tutorials on distributed training, with their parameter names:
///
/// ```text
/// SimpleModel       net.0, net.2, net.4             [batch, 128] -> [batch, 10]
/// ToyModel          net1, net2                      [batch, 10] -> [batch, 5]
/// ToyMpModel        net1, net2                      the same on two devices
/// ImageClassifier   features.0, features.3, classifier      [batch, 3, height, width] -> [batch, 10]
/// TrainModel        net.0, net.3, net.7             [batch, 3, height, width] -> [batch, 10]
/// ```
///
/// The same seed gives the same weights as in Python. Thread-safety: as any torch::nn module.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "cohort/export.h"

namespace cohort::models {

/// Three linear maps with ReLU between them.
class COHORT_API SimpleModelImpl : public torch::nn::Cloneable<SimpleModelImpl> {
 public:
  SimpleModelImpl() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& x) { return net->forward(x); }

  torch::nn::Sequential net{nullptr};
};
TORCH_MODULE(SimpleModel);

class COHORT_API ToyModelImpl : public torch::nn::Cloneable<ToyModelImpl> {
 public:
  ToyModelImpl() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear net1{nullptr}, net2{nullptr};
};
TORCH_MODULE(ToyModel);

/// Has the first map on one device, and the second on another one.
class COHORT_API ToyMpModelImpl : public torch::nn::Cloneable<ToyMpModelImpl> {
 public:
  ToyMpModelImpl(c10::Device first, c10::Device second) : first_(first), second_(second) { reset(); }
  void reset() override;
  /// `x`: on any device; the result is on the second one.
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear net1{nullptr}, net2{nullptr};

 private:
  c10::Device first_;
  c10::Device second_;
};
TORCH_MODULE(ToyMpModel);

/// Two convolutions of 32 and 64 channels, the mean over the image, and a linear map.
class COHORT_API ImageClassifierImpl : public torch::nn::Cloneable<ImageClassifierImpl> {
 public:
  ImageClassifierImpl() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& images) { return classifier(features->forward(images)); }

  torch::nn::Sequential features{nullptr};
  torch::nn::Linear classifier{nullptr};
};
TORCH_MODULE(ImageClassifier);

/// Like ImageClassifier with 64 and 128 channels, in one Sequential.
class COHORT_API TrainModelImpl : public torch::nn::Cloneable<TrainModelImpl> {
 public:
  TrainModelImpl() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& images) { return net->forward(images); }

  torch::nn::Sequential net{nullptr};
};
TORCH_MODULE(TrainModel);

}  // namespace cohort::models
