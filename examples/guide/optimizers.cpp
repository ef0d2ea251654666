// The programs of docs/guide/optimizers.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/ddp/hooks/all_reduce_hook.h>
#include <cohort/parallel/optim/average_parameters.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/optim/grad_scaler.h>
#include <cohort/parallel/optim/post_local_sgd_optimizer.h>
#include <cohort/parallel/zero/ddp_zero_hook.h>
#include <cohort/parallel/zero/zero_redundancy_optimizer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;

void clip() {
  cohort::DistributedDataParallel ddp(torch::nn::Linear(8, 1));
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  F::mse_loss(ddp(torch::randn({4, 8})), torch::randn({4, 1})).backward();
  const at::Tensor norm = cohort::nn::utils::clip_grad_norm_(ddp->parameters(), /*max_norm=*/1.0);
  optimizer.step();
  TORCH_CHECK(norm.dim() == 0);
}

void clip_with_a_norm() {
  cohort::DistributedDataParallel model(torch::nn::Linear(8, 1));
  F::mse_loss(model(torch::randn({4, 8})), torch::randn({4, 1})).backward();
  const at::Tensor norm = cohort::nn::utils::get_total_norm(cohort::nn::utils::gradients_of(model->parameters()));
  cohort::nn::utils::clip_grads_with_norm_(model->parameters(), /*max_norm=*/1.0, norm);
}

void step_in_one_pass() {
  cohort::DistributedDataParallel ddp(torch::nn::Linear(8, 1));
  cohort::optim::AdamW optimizer(ddp->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    F::mse_loss(ddp(torch::randn({4, 8})), torch::randn({4, 1})).backward();
    optimizer.step();
  }
}

void scale_gradients() {
  cohort::DistributedDataParallel ddp(torch::nn::Linear(8, 1));
  cohort::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.1));
  cohort::amp::GradScaler scaler({.device = at::kCPU});  // default: the machine's accelerator
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = F::mse_loss(ddp(torch::randn({4, 8})), torch::randn({4, 1}));
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);  // only needed to clip or read gradients
    cohort::nn::utils::clip_grad_norm_(ddp->parameters(), /*max_norm=*/1.0);
    scaler.step(optimizer);  // skips the step if a gradient is infinite or NaN
    scaler.update();         // the scale grows after 2,000 good steps, and is halved after a bad one
  }
  TORCH_CHECK(scaler.get_scale() == 65536);
}

void average_periodically() {
  torch::nn::Linear net(8, 1);
  for (const auto& parameter : net->parameters()) cohort::optim::average_parameters(parameter);  // equal at the start
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  cohort::optim::PeriodicModelAverager averager(/*period=*/4, /*warmup_steps=*/0);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    F::mse_loss(net(torch::randn({4, 8})), torch::randn({4, 1})).backward();
    optimizer.step();                                // on this rank's own gradients
    averager.average_parameters(net->parameters());  // steps 0 and 4: every rank gets the mean of all models
  }
  TORCH_CHECK(averager.step == 8);
}

void step_locally() {
  torch::nn::Linear net(8, 1);
  torch::optim::SGD local(net->parameters(), 0.1);
  cohort::optim::HierarchicalModelAverager averager({{2, 1}, {4, 2}}, /*warmup_steps=*/0);
  cohort::optim::PostLocalSGDOptimizer optimizer(local, averager);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    F::mse_loss(net(torch::randn({4, 8})), torch::randn({4, 1})).backward();
    optimizer.step();
  }
  std::stringstream file;
  torch::save(optimizer, file);  // with the averager's step
  torch::load(optimizer, file);
}

void divide(const std::string& path) {
  cohort::DistributedDataParallel ddp(torch::nn::Linear(8, 1));
  auto zero = cohort::ZeroRedundancyOptimizer::make<torch::optim::AdamW>(
      ddp->parameters(), torch::optim::AdamWOptions(1e-3), {.parameters_as_bucket_view = true});
  for (int step = 0; step < 8; ++step) {
    zero.zero_grad();
    F::mse_loss(ddp(torch::randn({4, 8})), torch::randn({4, 1})).backward();
    zero.step();
  }
  zero.consolidate_state_dict();  // on all ranks
  if (cohort::get_rank() == 0) torch::save(zero, path);
  cohort::barrier();
  torch::load(zero, path);  // every rank loads its shard
  TORCH_CHECK(zero.optim().state().size() == 1);
}

void step_inside_of_backward() {
  cohort::DistributedDataParallel ddp(torch::nn::Linear(8, 1));
  auto zero = cohort::ZeroRedundancyOptimizer::make<torch::optim::Adam>(
      ddp->parameters(), torch::optim::AdamOptions(1e-3), {.overlap_with_ddp = true});
  ddp->register_comm_hook(cohort::default_group(),
                          cohort::ddp::hook_with_zero_step_interleaved(cohort::ddp::allreduce_hook, zero));
  for (int step = 0; step < 8; ++step) {
    zero.zero_grad();
    F::mse_loss(ddp(torch::randn({4, 8})), torch::randn({4, 1})).backward();  // updates the parameters, too
  }
  TORCH_CHECK(zero.optim().state().size() == 1);
}

}  // namespace

void run_optimizers() {
  cohort::init_process_group();
  clip();
  clip_with_a_norm();
  step_in_one_pass();
  scale_gradients();
  average_periodically();
  step_locally();
  // The rank that writes names the file for all.
  at::Tensor writer = torch::tensor(static_cast<int64_t>(getpid()));
  cohort::broadcast(writer, /*src=*/0);
  const std::string name = "cohort_guide_" + std::to_string(writer.item<int64_t>()) + ".pt";
  const auto path = std::filesystem::temp_directory_path() / name;
  divide(path);
  cohort::barrier();
  std::filesystem::remove(path);
  step_inside_of_backward();
  cohort::destroy_process_group();
}

}  // namespace guide
