// The programs of docs/guide/fsdp.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/group/process_group.h>
#include <cohort/mesh/device_mesh.h>
#include <cohort/parallel/fsdp/full_tensor.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/fsdp/memory_account.h>
#include <cohort/parallel/fsdp/optimizer_state.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

void train_sharded() {
  torch::manual_seed(1);  // the same module on all ranks
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  auto model = cohort::fully_shard(net);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    F::mse_loss(model(torch::randn({4, 8})), torch::randn({4, 1})).backward();
    cohort::nn::utils::clip_grad_norm_(model->parameters(), /*max_norm=*/1.0);
    optimizer.step();
  }
}

void write_parameters() {
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4));
  model->write([](const std::string& name, const at::Tensor& full) {
    if (name == "weight") torch::nn::init::xavier_uniform_(full);
  });
  const at::NoGradGuard no_grad;
  for (auto& shard : model->parameters()) shard.mul_(0.5);  // elementwise, each rank its own shard
}

void add_up_gradients() {
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4));
  {
    const auto local = model->no_sync();
    model(torch::randn({4, 8})).sum().backward();
  }
  model(torch::randn({4, 8})).sum().backward();  // the sum of both is averaged here
}

void shard_together() {
  const cohort::fsdp::Options options{.one_memory = false};
  const torch::nn::LayerNormOptions layer_norm({8});
  auto [norm, head] =
      cohort::fully_shard(std::tuple(torch::nn::LayerNorm(layer_norm), torch::nn::Linear(8, 2)), options);
  struct Net : torch::nn::Module {
    Net(cohort::FullySharded<torch::nn::LayerNormImpl> first, cohort::FullySharded<torch::nn::LinearImpl> last)
        : norm(std::move(first)), head(std::move(last)) {
      register_module("norm", norm.ptr());
      register_module("head", head.ptr());
    }
    at::Tensor forward(at::Tensor x) { return head(norm(x)); }
    cohort::FullySharded<torch::nn::LayerNormImpl> norm;
    cohort::FullySharded<torch::nn::LinearImpl> head;
  };
  auto model = cohort::fully_shard(std::make_shared<Net>(norm, head), options);
  model(torch::randn({4, 8})).sum().backward();
}

void name_axes() {
  const auto mesh = cohort::init_device_mesh("cpu", {1, 1, 2}, {"outer", "tp", "inner"});
  const cohort::fsdp::DataParallelMeshDims axes{.shard = {"inner"}, .replicate = {"outer"}};
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4), {.mesh = mesh, .dp_mesh_dims = axes});
  model(torch::randn({4, 8})).sum().backward();
}

void gather_blocks() {
  struct Net : torch::nn::Module {
    Net() {
      for (int i = 0; i < 3; ++i) {
        auto block = cohort::fully_shard(torch::nn::Linear(8, 8), {.one_memory = false});
        blocks.push_back(register_module("block" + std::to_string(i), block));
      }
      head = register_module("head", torch::nn::Linear(8, 1));
    }
    at::Tensor forward(at::Tensor x) {
      for (auto& block : blocks) x = torch::relu(block(x));
      return head(x);
    }
    std::vector<cohort::FullySharded<torch::nn::LinearImpl>> blocks;
    torch::nn::Linear head{nullptr};
  };
  auto model = cohort::fully_shard(std::make_shared<Net>(), {.one_memory = false});
  model(torch::randn({4, 8})).sum().backward();
}

void copy_over_hosts() {
  const auto mesh = cohort::init_device_mesh("cpu", {2, 1}, {"dp_replicate", "dp_shard"});
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4), {.mesh = mesh});
  model(torch::randn({4, 8})).sum().backward();
}

void compute_fsdp_in_bfloat16() {
  const cohort::fsdp::MixedPrecisionPolicy policy{.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4), {.mp_policy = policy});
  auto loss = model(torch::randn({4, 8})).to(at::kFloat).sum();
  loss.backward();
}

void count_memory() {
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4));
  torch::optim::AdamW optimizer(model->parameters());
  model(torch::randn({4, 8})).sum().backward();
  optimizer.step();
  const auto report = cohort::fsdp::memory_report(*model, optimizer);
  if (cohort::get_rank() == 0) std::cout << report;
}

void shard_tensors() {
  auto weight = torch::randn({4, 8}).requires_grad_();
  cohort::fsdp::Sharding sharding({{"weight", weight}});
  at::Tensor loss;
  {
    const auto pass = sharding.forward();
    loss = torch::randn({2, 8}).matmul(weight.t()).sum();
  }
  loss.backward();
  TORCH_CHECK(sharding.parameters().front().grad().size(0) == 2);  // this rank's two rows
}

void save_full_checkpoint(const std::string& path) {
  auto model = cohort::fully_shard(torch::nn::Linear(8, 4));
  torch::optim::AdamW optimizer(model->parameters());
  model(torch::randn({4, 8})).sum().backward();
  optimizer.step();

  const bool is_first = cohort::get_rank() == 0;
  torch::nn::Linear unsharded(8, 4);                            // the unsharded module of a single process
  torch::optim::AdamW full_optimizer(unsharded->parameters());  // on rank 0; other ranks ignore it
  const auto parameters = cohort::fsdp::sharded_parameters(*model);
  for (const auto& parameter : parameters) {
    const at::Tensor full = cohort::fsdp::full_tensor(parameter);
    const at::NoGradGuard no_grad;
    if (is_first) unsharded->named_parameters()[parameter.name].copy_(full);
  }
  cohort::fsdp::get_full_optimizer_state(parameters, optimizer, &full_optimizer);
  if (is_first) cohort::checkpoint::save_checkpoint(*unsharded, &full_optimizer, path);

  if (is_first) cohort::checkpoint::load_checkpoint(*unsharded, &full_optimizer, path);
  model->write(
      [&](const std::string& name, const at::Tensor& full) { full.copy_(unsharded->named_parameters()[name]); });
  cohort::fsdp::set_full_optimizer_state(parameters, optimizer, &full_optimizer);
}

}  // namespace

void run_fsdp() {
  cohort::init_process_group("shm");
  train_sharded();
  write_parameters();
  add_up_gradients();
  gather_blocks();
  shard_together();
  name_axes();
  copy_over_hosts();
  compute_fsdp_in_bfloat16();
  count_memory();
  shard_tensors();
  const auto path =
      (std::filesystem::temp_directory_path() / ("guide_fsdp_" + std::to_string(::getpid()) + ".safetensors")).string();
  save_full_checkpoint(path);
  std::filesystem::remove(path);
  cohort::destroy_process_group();
}

}  // namespace guide
