// The nets of ddp_reference.py, operation by operation.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace cohort::proof {

namespace nn = torch::nn;

struct MlpImpl : nn::Module {
  MlpImpl() {
    first = register_module("first", nn::Linear(10, 32));
    second = register_module("second", nn::Linear(32, 32));
    third = register_module("third", nn::Linear(32, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return third(torch::relu(second(torch::relu(first(x))))); }

  nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Mlp);

struct CnnImpl : nn::Module {
  CnnImpl() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)));
    bn1 = register_module("bn1", nn::BatchNorm2d(8));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(8, 16, 3).stride(2).padding(1).bias(false)));
    bn2 = register_module("bn2", nn::BatchNorm2d(16));
    head = register_module("head", nn::Linear(16, 5));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    x = torch::relu(bn2(conv2(x)));
    return head(x.mean({2, 3}));
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Cnn);

struct TransformerImpl : nn::Module {
  explicit TransformerImpl(bool sparse = false) {
    places = register_parameter("places", torch::zeros({12, 16}));
    tokens = register_module("tokens", nn::Embedding(nn::EmbeddingOptions(40, 16).sparse(sparse)));
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({16})));
    qkv = register_module("qkv", nn::Linear(16, 48));
    proj = register_module("proj", nn::Linear(16, 16));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({16})));
    up = register_module("up", nn::Linear(16, 64));
    down = register_module("down", nn::Linear(64, 16));
    norm3 = register_module("norm3", nn::LayerNorm(nn::LayerNormOptions({16})));
    head = register_module("head", nn::Linear(nn::LinearOptions(16, 40).bias(false)));
  }
  at::Tensor forward(const at::Tensor& ids) {
    auto x = tokens(ids) + places;
    const auto parts = qkv(norm1(x)).view({ids.size(0), 12, 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + proj(attended.transpose(1, 2).reshape({ids.size(0), 12, 16}));
    x = x + down(torch::gelu(up(norm2(x))));
    return head(norm3(x));
  }

  at::Tensor places;
  nn::Embedding tokens{nullptr};
  nn::LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
};
TORCH_MODULE(Transformer);

/// `shared` has two names and is used twice; `left` and `right` are used as the flags say, `never` by nobody.
struct BranchesImpl : nn::Module {
  BranchesImpl() {
    trunk = register_module("trunk", nn::Linear(8, 8));
    shared = register_module("shared", nn::Linear(8, 8));
    never = register_module("never", nn::Linear(8, 8));
    left = register_module("left", nn::Linear(8, 8));
    right = register_module("right", nn::Linear(8, 8));
    again = register_module("again", shared);
  }
  at::Tensor forward(at::Tensor x, int64_t flags) {
    x = again(torch::relu(shared(trunk(x))));
    if (flags & 1) x = x + left(x);
    if (flags & 2) x = x + right(x);
    return x;
  }

  nn::Linear trunk{nullptr}, shared{nullptr}, never{nullptr}, left{nullptr}, right{nullptr}, again{nullptr};
};
TORCH_MODULE(Branches);

/// float, double and bfloat16 parameters.
struct MixedImpl : nn::Module {
  MixedImpl() {
    weight = register_parameter("weight", torch::zeros({8, 8}));
    scale = register_parameter("scale", torch::zeros({8}, at::kDouble));
    narrow = register_module("narrow", nn::Linear(8, 8));
    narrow->to(at::kBFloat16);
    head = register_module("head", nn::Linear(8, 4));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::tanh(torch::matmul(x, weight));
    x = narrow(x.to(at::kBFloat16)).to(at::kDouble) * scale;
    return head(x.to(at::kFloat));
  }

  at::Tensor weight, scale;
  nn::Linear narrow{nullptr}, head{nullptr};
};
TORCH_MODULE(Mixed);

}  // namespace cohort::proof
