#include <cohort/cohort.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>

int main() {
  cohort::init_process_group();
  torch::manual_seed(cohort::get_rank());  // each rank has its own data; DDP starts all of them from rank 0's weights

  torch::nn::Linear net(20, 1);
  cohort::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(ddp->parameters(), 0.02);

  for (int step = 1; step <= 100; ++step) {
    const at::Tensor x = torch::randn({32, 20});
    const at::Tensor loss = torch::nn::functional::mse_loss(ddp(x), x.sum(1, true));
    optimizer.zero_grad();
    loss.backward();  // gradients are averaged over the ranks when it returns
    optimizer.step();
    if (step % 50 == 0) std::printf("rank %d step %d loss %.6f\n", cohort::get_rank(), step, loss.item<float>());
  }
  cohort::destroy_process_group();
}
