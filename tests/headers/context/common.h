// Declares the names that many examples in the headers' comments use without declaring them.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <csignal>
#include <iostream>

namespace cohort::given {

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  void reset() override;
  at::Tensor forward(at::Tensor input);
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Net);
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width = 64);
  at::Tensor forward(at::Tensor input);
};
TORCH_MODULE(Block);

extern Net net, model;
extern torch::optim::SGD optimizer;
extern at::Tensor tensor, input, inputs, target, targets, x, tokens, images, image, labels, logits, weight, loss;
extern int rank, world_size, epoch, epochs, step, seed, index, num_stages;
extern DeviceMesh mesh;
extern Group tp, cp;
extern data::TensorDataset<2> dataset;

at::Tensor loss_fn(const at::Tensor& output, const at::Tensor& target);
at::Tensor cross_entropy(const at::Tensor& output, const at::Tensor& target);

inline data::DataLoader loader(dataset, {.batch_size = 32});

}  // namespace cohort::given
