// The programs of docs/guide/optimizers.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/optim/average_parameters.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/optim/post_local_sgd_optimizer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <sstream>

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

}  // namespace

void run_optimizers() {
  cohort::init_process_group();
  clip();
  average_periodically();
  step_locally();
  cohort::destroy_process_group();
}

}  // namespace guide
