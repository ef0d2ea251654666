// Trains a small net by fully_shard, as fsdp_test.py does by PyTorch's FSDP2, and prints the losses of all steps and the final
// parameters. Arguments: a safetensors file with the net's first weights, then words: "nested", "accumulate", "clip", "frozen".
// Run by `cohort run`.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <set>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"

namespace {

constexpr int kSteps = 20;

// Also in Python.
at::Tensor numbers(int64_t rows, int64_t columns, int64_t seed) {
  const auto values = at::arange(rows * columns, at::kDouble) * 0.37 + static_cast<double>(seed) * 1.7;
  return at::sin(values).view({rows, columns}).to(at::kFloat);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  cohort::init_process_group({.backend = "shm"});
  const std::set<std::string> words(argv + 2, argv + argc);
  torch::nn::Sequential net;
  const int64_t sizes[] = {7, 13, 5, 3};
  for (int i = 0; i < 3; ++i) {
    torch::nn::Linear layer(sizes[i], sizes[i + 1]);
    if (words.contains("frozen") && i == 1) layer->weight.set_requires_grad(false);
    net->push_back(layer);
    if (i < 2) net->push_back(torch::nn::Tanh());
  }
  {
    const at::NoGradGuard no_grad;
    const auto weights = cohort::checkpoint::load_file(argv[1]);
    for (auto& entry : net->named_parameters()) entry.value().copy_(weights[entry.key()]);
  }
  torch::nn::Sequential outer;
  if (words.contains("nested")) {
    outer->push_back("inner", cohort::fully_shard(net));
    outer->push_back("last", torch::nn::Identity());
  }
  auto model = words.contains("nested") ? cohort::fully_shard(outer) : cohort::fully_shard(net);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  const int rank = cohort::get_rank();
  const int num_micro = words.contains("accumulate") ? 3 : 1;
  for (int step = 0; step < kSteps; ++step) {
    double losses = 0;
    for (int micro = 0; micro < num_micro; ++micro) {
      model->set_requires_gradient_sync(micro == num_micro - 1);
      const auto seed = 1000 * step + 10 * rank + micro;
      const auto loss = (model(numbers(4, 7, seed)) - numbers(4, 3, seed + 5)).square().mean();
      losses += loss.item<double>();
      loss.backward();
    }
    double norm = 0;
    if (words.contains("clip")) norm = cohort::nn::utils::clip_grad_norm_(model->parameters(), 0.1).item<double>();
    optimizer.step();
    optimizer.zero_grad();
    auto sum = at::tensor({losses}, at::kDouble);
    cohort::all_reduce(sum);
    if (rank == 0) std::printf("step %.9g %.9g\n", sum.item<double>(), norm);
  }
  cohort::barrier();
  if (rank == 0) {
    for (const auto& parameter : net->parameters()) {
      const auto flat = parameter.detach().reshape({-1});
      for (int64_t i = 0; i < flat.numel(); ++i) std::printf("value %.9g\n", flat[i].item<double>());
    }
  }
  cohort::barrier();
  cohort::destroy_process_group();
  return 0;
}
