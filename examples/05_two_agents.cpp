// One training job on two hosts. Each host runs an agent (`cohort run`) that starts the ranks there; both agents get the same
// address, at which rank 0 listens. Here both agents run on one host, in two terminals:
//
//   build/bin/cohort run --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port 29517
//       build/bin/examples/two_agents
//   build/bin/cohort run --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port 29517
//       build/bin/examples/two_agents
//
// (each command on one line). Every rank prints where it runs, and then the mean loss, which is the same on all ranks:
//   rank 1 of 2 | agent 1 | local rank 0 of 1
//   rank 1 | step 0 | loss 1.1379
//   ...
//   rank 1 | step 9 | loss 1.0823
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>

namespace {

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  at::Tensor forward(const at::Tensor& x) { return net2(torch::relu(net1(x))); }

  torch::nn::Linear net1{10, 10};
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyModel);

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "?";
}

}  // namespace

int main() {
  cohort::init_process_group();
  const int rank = cohort::get_rank();
  std::printf("rank %d of %d | agent %s | local rank %s of %s\n", rank, cohort::get_world_size(),
              environment("GROUP_RANK"), environment("LOCAL_RANK"), environment("LOCAL_WORLD_SIZE"));

  cohort::DistributedDataParallel model(ToyModel{});
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.01);
  torch::manual_seed(rank);  // a different batch on every rank
  const at::Tensor inputs = torch::randn({20, 10}), labels = torch::randn({20, 5});
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = torch::nn::functional::mse_loss(model(inputs), labels);
    loss.backward();
    optimizer.step();
    at::Tensor mean = loss.detach().clone();
    cohort::all_reduce(mean, {.op = cohort::ReduceOp::AVG});
    std::printf("rank %d | step %d | loss %.4f\n", rank, step, mean.item<double>());
    std::fflush(stdout);
  }
  cohort::destroy_process_group();
}
