// Trains in one process, the starting point of the next three examples: Linear(20, 1) on 2048 random samples.
//
//   build/bin/examples/train_single --epochs 50 --save-every 5
//
// prints one line per epoch, and one per checkpoint (written to --checkpoint, by default checkpoint.safetensors):
//   epoch 0 | batch size 32 | steps 64 | loss 0.4063
//   epoch 0 | checkpoint saved at checkpoint.safetensors
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

namespace {

using Data = cohort::data::DataLoader<cohort::data::TensorDataset<2>>;

struct Settings {
  int epochs = 50;
  int save_every = 5;
  int batch_size = 32;
  std::string checkpoint = "checkpoint.safetensors";
};

class Trainer {
 public:
  Trainer(torch::nn::Linear model, const Settings& settings)
      : model_(model), optimizer_(model->parameters(), /*lr=*/1e-3), settings_(settings) {}

  void train(const Data& data) {
    for (int epoch = 0; epoch < settings_.epochs; ++epoch) {
      run_epoch(epoch, data);
      if (epoch % settings_.save_every == 0) save_checkpoint(epoch);
    }
  }

 private:
  void run_epoch(int epoch, const Data& data) {
    double sum = 0.0;
    for (auto& [source, targets] : data) sum += run_batch(source, targets);
    std::printf("epoch %d | batch size %d | steps %lld | loss %.4f\n", epoch, settings_.batch_size,
                static_cast<long long>(data.size()), sum / static_cast<double>(data.size()));
  }

  double run_batch(const at::Tensor& source, const at::Tensor& targets) {
    optimizer_.zero_grad();
    // The tutorial's cross_entropy is always 0 for a single output; the squared error gives the model something to learn.
    const at::Tensor loss = torch::nn::functional::mse_loss(model_(source), targets);
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

  void save_checkpoint(int epoch) {
    cohort::checkpoint::save_file(cohort::checkpoint::state_dict(*model_), settings_.checkpoint);
    std::printf("epoch %d | checkpoint saved at %s\n", epoch, settings_.checkpoint.c_str());
  }

  torch::nn::Linear model_;
  torch::optim::SGD optimizer_;
  Settings settings_;
};

void run(const Settings& settings) {
  torch::manual_seed(0);
  const Data data(cohort::data::TensorDataset(torch::rand({2048, 20}), torch::rand({2048, 1})),
                  {.batch_size = settings.batch_size, .shuffle = true});
  Trainer(torch::nn::Linear(20, 1), settings).train(data);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains Linear(20, 1) in one process.");
  app.add_option("--epochs", settings.epochs, "how many times to go through the data")->check(CLI::Range(1, 1000000));
  app.add_option("--save-every", settings.save_every, "epochs between checkpoints")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", settings.batch_size, "samples per step")->check(CLI::Range(1, 1000000));
  app.add_option("--checkpoint", settings.checkpoint, "file to write");
  CLI11_PARSE(app, argc, argv);
  run(settings);
}
