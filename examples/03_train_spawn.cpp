// The training of train_single on several processes of one machine: spawn starts them, DistributedDataParallel averages their
// gradients, and DistributedSampler gives each its own samples.
//
//   build/bin/examples/train_spawn --nprocs 2 --epochs 50 --save-every 5
//
// prints one line per rank and epoch, and one per checkpoint, which rank 0 writes:
//   [rank 0] epoch 0 | batch size 32 | steps 32 | loss 0.4128
//   [rank 1] epoch 0 | batch size 32 | steps 32 | loss 0.4075
//   [rank 0] epoch 0 | checkpoint saved at checkpoint.safetensors
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/process/spawn.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace {

using Data = cohort::data::DataLoader<cohort::data::TensorDataset<2>>;

struct Settings {
  int nprocs = 2;
  int epochs = 50;
  int save_every = 5;
  int batch_size = 32;
  std::string checkpoint = "checkpoint.safetensors";
};

class Trainer {
 public:
  Trainer(int rank, torch::nn::Linear model, const Settings& settings)
      : rank_(rank), model_(model), optimizer_(model_->parameters(), /*lr=*/1e-3), settings_(settings) {}

  void train(const Data& data, cohort::data::DistributedSampler& sampler) {
    for (int epoch = 0; epoch < settings_.epochs; ++epoch) {
      sampler.set_epoch(epoch);
      run_epoch(epoch, data);
      if (rank_ == 0 && epoch % settings_.save_every == 0) save_checkpoint(epoch);
    }
  }

 private:
  void run_epoch(int epoch, const Data& data) {
    double sum = 0.0;
    for (auto& [source, targets] : data) sum += run_batch(source, targets);
    std::printf("[rank %d] epoch %d | batch size %d | steps %lld | loss %.4f\n", rank_, epoch, settings_.batch_size,
                static_cast<long long>(data.size()), sum / static_cast<double>(data.size()));
  }

  double run_batch(const at::Tensor& source, const at::Tensor& targets) {
    optimizer_.zero_grad();
    const at::Tensor loss = torch::nn::functional::mse_loss(model_(source), targets);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

  void save_checkpoint(int epoch) {
    cohort::checkpoint::save_file(cohort::checkpoint::state_dict(model_->module()), settings_.checkpoint);
    std::printf("[rank 0] epoch %d | checkpoint saved at %s\n", epoch, settings_.checkpoint.c_str());
  }

  int rank_;
  cohort::DistributedDataParallel<torch::nn::LinearImpl> model_;
  torch::optim::SGD optimizer_;
  Settings settings_;
};

// Runs one rank. The processes meet through a file, so they need no free port.
void run(int rank, const Settings& settings, const std::string& meeting_file) {
  cohort::init_process_group(
      {.backend = "gloo", .init_method = "file://" + meeting_file, .world_size = settings.nprocs, .rank = rank});
  torch::manual_seed(0);
  cohort::data::TensorDataset dataset(torch::rand({2048, 20}), torch::rand({2048, 1}));
  auto sampler = std::make_shared<cohort::data::DistributedSampler>(dataset.size());
  const Data data(dataset, {.batch_size = settings.batch_size, .sampler = sampler});
  Trainer(rank, torch::nn::Linear(20, 1), settings).train(data, *sampler);
  cohort::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains Linear(20, 1) on several processes of this machine.");
  app.add_option("--nprocs", settings.nprocs, "number of processes")->check(CLI::Range(1, 1000000));
  app.add_option("--epochs", settings.epochs, "how many times to go through the data")->check(CLI::Range(1, 1000000));
  app.add_option("--save-every", settings.save_every, "epochs between checkpoints")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", settings.batch_size, "samples per step and process")->check(CLI::Range(1, 1000000));
  app.add_option("--checkpoint", settings.checkpoint, "file to write");
  CLI11_PARSE(app, argc, argv);

  const auto meeting_file = std::filesystem::temp_directory_path() / ("train_spawn." + std::to_string(::getpid()));
  int status = 0;
  try {
    cohort::spawn([&](int rank) { run(rank, settings, meeting_file); }, settings.nprocs);
  } catch (const cohort::ProcessFailedError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::filesystem::remove(meeting_file);
  return status;
}
