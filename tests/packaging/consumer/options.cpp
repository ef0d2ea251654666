// Options of which some are named, and others left out, of all parts of the library: a user's -Wall -Wextra says nothing of it.
#include <cohort/all.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

void use_some_options(const at::Tensor& tensor) {
  const auto group = cohort::new_group({0, 1}, {.group_desc = "pair"});
  cohort::all_reduce(tensor, {.op = cohort::ReduceOp::AVG});
  cohort::all_reduce(tensor, {.group = group});
  cohort::all_reduce(tensor, cohort::ReduceOp::MAX);
  cohort::barrier({.timeout = std::chrono::seconds(5)});
}

struct Net : torch::nn::Module {
  Net() {
    block = register_module("block", cohort::fully_shard(torch::nn::Linear(8, 8), {.reshard_after_forward = true}));
    norm = register_module("norm", cohort::convert_sync_batchnorm(torch::nn::BatchNorm1d(8)));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(block(x)); }
  cohort::FullySharded<torch::nn::LinearImpl> block{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// Uses names that cohort/all.h has and cohort/cohort.h lacks.
void use_all_parts(const at::Tensor& tensor) {
  auto net = cohort::fully_shard(std::make_shared<Net>());
  const cohort::Autocast region(at::kCPU);
  const auto loss = net(tensor).sum();
  cohort::optim::AdamW optimizer(net->parameters());
  cohort::optim::CosineAnnealingLR schedule(optimizer, 10);
  const cohort::DTensor sharded = cohort::distribute_tensor(loss, cohort::init_device_mesh("cpu", {2}));
  const cohort::train::Trainer trainer({.max_epochs = 1});
}
