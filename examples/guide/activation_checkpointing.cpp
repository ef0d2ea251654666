// The programs of docs/guide/activation_checkpointing.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/group/process_group.h>
#include <cohort/parallel/activation/activation_checkpoint.h>
#include <cohort/parallel/activation/checkpoint.h>
#include <cohort/parallel/activation/save_on_cpu.h>
#include <cohort/parallel/activation/saved_tensor_hooks.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "guide.h"

namespace guide {
namespace {

void recompute() {
  torch::nn::Linear first(8, 64);
  torch::nn::Linear second(64, 8);
  const auto block = [=](const at::Tensor& x) mutable { return second(first(x).relu().tanh()); };

  const at::Tensor x = torch::randn({4, 8});
  const at::Tensor y = cohort::activation::checkpoint(block, x);
  const at::Tensor z = cohort::activation::checkpoint({.preserve_rng_state = false, .early_stop = false}, block, y);
  z.sum().backward();  // runs block twice more
  TORCH_CHECK(first->weight.grad().defined());
}

void recompute_in_segments() {
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8), torch::nn::Tanh());
  cohort::activation::checkpoint_sequential(*net, /*segments=*/2, torch::randn({4, 8})).sum().backward();
}

void wrap_modules() {
  using torch::nn::LinearImpl;
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Tanh(),
                            cohort::OffloadWrapper(torch::nn::Linear(8, 8)));
  cohort::apply_activation_checkpointing<LinearImpl>(*net, [](size_t index) { return index == 0; });
  cohort::DistributedDataParallel ddp(net);
  ddp(torch::randn({4, 8})).sum().backward();
}

void keep_on_the_cpu() {
  torch::nn::Linear net(8, 8);
  at::Tensor loss;
  {
    const cohort::SaveOnCpu offload({.pin_memory = false});
    loss = net(torch::randn({4, 8})).tanh().sum();
  }
  loss.backward();
}

void keep_in_another_form() {
  const at::Tensor x = torch::randn({4, 8}, at::requires_grad());
  at::Tensor y;
  {
    const cohort::SavedTensorHooks hooks([](const at::Tensor& saved) { return saved.to(at::kBFloat16); },
                                         [](const at::Tensor& packed) { return packed.to(at::kFloat); });
    y = x.exp();
  }
  y.sum().backward();
}

}  // namespace

void run_activation_checkpointing() {
  cohort::init_process_group();
  recompute();
  recompute_in_segments();
  wrap_modules();
  keep_on_the_cpu();
  keep_in_another_form();
  cohort::destroy_process_group();
}

}  // namespace guide
