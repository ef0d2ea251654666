// tensor_plan_rank BACKEND RESULT: a small transformer by parallelize_module on this rank: losses and gradients, with tokens that
// all ranks have and with tokens that are shared out by positions. tensor_plan_python_rank.py computes the same by PyTorch.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include <iostream>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/tensor/parallelize_module.h"

namespace {

constexpr int64_t kWords = 24, kWidth = 16, kHeadSize = 4, kPositions = 8;

struct PlanNetImpl : torch::nn::Module {
  PlanNetImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(kWords, kWidth));
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    query = register_module("query", torch::nn::Linear(kWidth, kWidth));
    key = register_module("key", torch::nn::Linear(kWidth, kWidth));
    value = register_module("value", torch::nn::Linear(kWidth, kWidth));
    output = register_module("output", torch::nn::Linear(kWidth, kWidth));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWords).bias(false)));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const auto x = embedding(tokens), y = norm1(x);
    const auto heads = [&](torch::nn::Linear& layer) {
      return layer(y).unflatten(-1, {-1, kHeadSize}).transpose(1, 2);
    };
    const auto attended =
        at::scaled_dot_product_attention(heads(query), heads(key), heads(value), {}, 0, /*is_causal=*/true);
    const auto z = x + output(attended.transpose(1, 2).flatten(2));
    return head(z + down(at::gelu(up(norm2(z)))));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, output{nullptr}, up{nullptr}, down{nullptr},
      head{nullptr};
};
TORCH_MODULE(PlanNet);

at::Tensor drawn(c10::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(at::kFloat);
}

cohort::checkpoint::StateDict results;

void keep(const std::string& name, const at::Tensor& tensor) {
  results.insert(name, tensor.detach().contiguous().clone());
}

void run(const std::string& name, const cohort::Placement& cut, const cohort::DeviceMesh& mesh) {
  PlanNet net;
  {
    const at::NoGradGuard no_grad;
    uint64_t seed = 1;
    for (auto& parameter : net->parameters()) parameter.copy_(drawn(parameter.sizes(), seed++) * 0.2);
  }
  cohort::parallelize_module(*net, mesh,
                             {{"embedding", cohort::RowwiseParallel()},
                              {"query", cohort::ColwiseParallel{.num_heads = kWidth / kHeadSize}},
                              {"[kv][ea]*", cohort::ColwiseParallel{.num_heads = kWidth / kHeadSize}},
                              {"up", cohort::ColwiseParallel()},
                              {"output", cohort::RowwiseParallel()},
                              {"down", cohort::RowwiseParallel()},
                              {"norm?", cohort::SequenceParallel()},
                              {"head", cohort::ColwiseParallel()}});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto tokens = (at::arange(3 * (kPositions + 1)) * 7).remainder(kWords).view({3, kPositions + 1});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const cohort::DTensor inputs = cohort::distribute_tensor(tokens.narrow(1, 0, kPositions), mesh, {cut});
    const auto logits = net->forward(inputs);
    const auto loss = at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, kPositions).reshape(-1));
    loss.backward();
    keep(name + ".loss" + std::to_string(step), cohort::DTensor(loss.detach()).full_tensor());
    optimizer.step();
  }
  for (const auto& entry : net->named_parameters()) {
    const cohort::DTensor parameter(entry.value()), gradient(entry.value().grad());
    keep(name + "." + entry.key(), parameter.to_local());
    keep(name + "." + entry.key() + ".grad", gradient.to_local());
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    cohort::init_process_group(argv[1]);
    const auto mesh = cohort::init_device_mesh("cpu", {cohort::get_world_size()}, {"tp"});
    run("tensor", cohort::Replicate(), mesh);
    run("sequence", cohort::Shard(1), mesh);
    cohort::checkpoint::save_file(results, argv[2]);
    cohort::barrier();
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
