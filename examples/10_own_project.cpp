// A template for your own program: sharded data, gradient accumulation, clipping, a learning-rate schedule, evaluation, and a
// checkpoint from which a stopped run resumes.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/own_project
//
// prints a line per epoch, from rank 0:
//   epoch 0 | lr 0.0100 | held-out loss 0.7886
// and writes own_project.safetensors. If it is started again while this file exists, it resumes after the last epoch:
//   resuming after epoch 5
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace {

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output(torch::relu(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(20, 64));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(64, 1));
};
TORCH_MODULE(Net);

using Model = cohort::DistributedDataParallel<NetImpl>;
using Loader = cohort::data::DataLoader<cohort::data::TensorDataset<2>>;

constexpr int64_t kEpochs = 6;
constexpr int64_t kGradientAccumulationSteps = 2;
constexpr const char* kCheckpoint = "own_project.safetensors";

cohort::data::TensorDataset<2> make_data(int64_t count) {
  const at::Tensor x = torch::randn({count, 20});
  return cohort::data::TensorDataset<2>(x, x.sum(/*dim=*/1, /*keepdim=*/true));
}

// Gradients stay on this rank until the last of the accumulated batches, whose backward() averages their sum over the ranks.
void train_epoch(Model& model, torch::optim::AdamW& optimizer, const Loader& data) {
  int64_t num_batches = 0;
  for (const auto& [x, y] : data) {
    if (++num_batches % kGradientAccumulationSteps != 0) {
      const auto local = model->no_sync();
      (F::mse_loss(model(x), y) / kGradientAccumulationSteps).backward();
      continue;
    }
    (F::mse_loss(model(x), y) / kGradientAccumulationSteps).backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), /*max_norm=*/1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
}

// Each rank evaluates its own samples. module() is the model without DDP, which has nothing to synchronize here.
double evaluate(Model& model, const Loader& data) {
  const torch::NoGradGuard no_grad;
  model->eval();
  at::Tensor sums = torch::zeros({2});
  for (const auto& [x, y] : data) sums += torch::stack({F::mse_loss(model->module().forward(x), y), torch::ones({})});
  model->train();
  cohort::all_reduce(sums);
  return (sums[0] / sums[1]).item<double>();
}

}  // namespace

int main() {
  cohort::init_process_group();
  torch::manual_seed(0);  // all ranks make the same data; each then trains on its own samples
  const auto training = make_data(2048), held_out = make_data(512);
  const auto sampler = std::make_shared<cohort::data::DistributedSampler>(training.size());
  const Loader training_data(training, {.batch_size = 32, .sampler = sampler, .num_workers = 1});
  const Loader held_out_data(held_out,
                             {.batch_size = 64,
                              .sampler = std::make_shared<cohort::data::DistributedSampler>(
                                  held_out.size(), cohort::data::DistributedSamplerOptions{.shuffle = false})});

  Model model(Net{});
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);

  const bool resumes = std::filesystem::exists(kCheckpoint);
  cohort::barrier();  // no rank may write the first checkpoint while others still look for it
  int64_t first = 0;
  if (resumes) {
    first = std::stoll(cohort::checkpoint::load_metadata(kCheckpoint).at("epoch"));
    for (int64_t epoch = 0; epoch < first; ++epoch) schedule.step();  // before the checkpoint restores the rate
    cohort::checkpoint::load_checkpoint(model->module(), &optimizer, kCheckpoint);
    if (cohort::get_rank() == 0) std::printf("resuming after epoch %lld\n", static_cast<long long>(first - 1));
  }
  for (int64_t epoch = first; epoch < kEpochs; ++epoch) {
    const double lr = optimizer.param_groups()[0].options().get_lr();
    sampler->set_epoch(epoch);  // a new order, the same on every rank
    train_epoch(model, optimizer, training_data);
    schedule.step();
    const double loss = evaluate(model, held_out_data);  // on every rank, as it is collective
    if (cohort::get_rank() != 0) continue;
    std::printf("epoch %lld | lr %.4f | held-out loss %.4f\n", static_cast<long long>(epoch), lr, loss);
    cohort::checkpoint::save_checkpoint(model->module(), &optimizer, kCheckpoint, {.epoch = epoch + 1});
  }
  cohort::destroy_process_group();
}
