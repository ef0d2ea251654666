// Compiled by compile-time: a user's first program, with the narrow headers.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"

int main() {
  cohort::init_process_group("gloo");
  torch::nn::Linear net(20, 1);
  cohort::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(ddp->parameters(), 0.02);
  for (int step = 1; step <= 100; ++step) {
    const at::Tensor x = torch::randn({32, 20});
    const at::Tensor loss = torch::nn::functional::mse_loss(ddp(x), x.sum(1, true));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 50 == 0) std::printf("rank %d step %d loss %.6f\n", cohort::get_rank(), step, loss.item<float>());
  }
  cohort::destroy_process_group();
}
