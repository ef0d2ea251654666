// The training under the launcher, with snapshots: rank, world size and address come from environment variables of `cohort run`
// (or torchrun), and a run that is started again resumes from the last snapshot.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/train_run --epochs 50 --save-every 10
//
// prints one line per rank and epoch, and one per snapshot, which rank 0 writes:
//   [rank 0] epoch 0 | batch size 32 | steps 32 | loss 0.4128
//   [rank 0] epoch 0 | snapshot saved at snapshot.safetensors
// If it is started again while the snapshot exists:
//   [rank 0] resuming from snapshot.safetensors at epoch 41
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace {

using Data = cohort::data::DataLoader<cohort::data::TensorDataset<2>>;

struct Settings {
  int epochs = 50;
  int save_every = 10;
  int batch_size = 32;
  std::string snapshot = "snapshot.safetensors";
};

class Trainer {
 public:
  Trainer(torch::nn::Linear model, const Settings& settings)
      : rank_(cohort::get_rank()),
        settings_(settings),
        epochs_run_(load_snapshot(model)),
        model_(model),
        optimizer_(model_->parameters(), /*lr=*/1e-3) {}

  void train(const Data& data, cohort::data::DistributedSampler& sampler) {
    for (int epoch = epochs_run_; epoch < settings_.epochs; ++epoch) {
      sampler.set_epoch(epoch);
      run_epoch(epoch, data);
      if (rank_ == 0 && epoch % settings_.save_every == 0) save_snapshot(epoch);
    }
  }

 private:
  void run_epoch(int epoch, const Data& data) {
    double sum = 0.0;
    for (auto& [source, targets] : data) sum += run_batch(source, targets);
    std::printf("[rank %d] epoch %d | batch size %d | steps %lld | loss %.4f\n", rank_, epoch, settings_.batch_size,
                static_cast<long long>(data.size()), sum / static_cast<double>(data.size()));
    std::fflush(stdout);
  }

  double run_batch(const at::Tensor& source, const at::Tensor& targets) {
    optimizer_.zero_grad();
    const at::Tensor loss = torch::nn::functional::mse_loss(model_(source), targets);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

  void save_snapshot(int epoch) {
    cohort::checkpoint::save_file(cohort::checkpoint::state_dict(model_->module()), settings_.snapshot,
                                  {{"epochs_run", std::to_string(epoch + 1)}});
    std::printf("[rank 0] epoch %d | snapshot saved at %s\n", epoch, settings_.snapshot.c_str());
  }

  // Reads the file on every rank; without a file, training starts at epoch 0.
  int load_snapshot(torch::nn::Linear& model) {
    const bool is_there = std::filesystem::exists(settings_.snapshot);
    cohort::barrier();  // no rank may write the first snapshot while others still look for it
    if (!is_there) return 0;
    cohort::checkpoint::load_state_dict(*model, cohort::checkpoint::load_file(settings_.snapshot));
    const int epochs_run = std::stoi(cohort::checkpoint::load_metadata(settings_.snapshot).at("epochs_run"));
    std::printf("[rank %d] resuming from %s at epoch %d\n", rank_, settings_.snapshot.c_str(), epochs_run);
    return epochs_run;
  }

  int rank_;
  Settings settings_;
  int epochs_run_;
  cohort::DistributedDataParallel<torch::nn::LinearImpl> model_;
  torch::optim::SGD optimizer_;
};

void run(const Settings& settings) {
  cohort::init_process_group();
  torch::manual_seed(0);
  cohort::data::TensorDataset dataset(torch::rand({2048, 20}), torch::rand({2048, 1}));
  auto sampler = std::make_shared<cohort::data::DistributedSampler>(dataset.size());
  const Data data(dataset, {.batch_size = settings.batch_size, .sampler = sampler});
  Trainer(torch::nn::Linear(20, 1), settings).train(data, *sampler);
  cohort::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains Linear(20, 1) under `cohort run`, with snapshots.");
  app.add_option("--epochs", settings.epochs, "how many times to go through the data")->check(CLI::Range(1, 1000000));
  app.add_option("--save-every", settings.save_every, "epochs between snapshots")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", settings.batch_size, "samples per step and process")->check(CLI::Range(1, 1000000));
  app.add_option("--snapshot", settings.snapshot, "file to write, and to resume from if it exists");
  CLI11_PARSE(app, argc, argv);
  run(settings);
}
