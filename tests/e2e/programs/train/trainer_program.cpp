// A small classifier with a Trainer.
//
//   trainer_program losses STRATEGY PRECISION ACCUMULATION FROM OUT   trains on the data of FROM with its weights; each rank
//                                                                     writes OUT.<rank> with the loss of each of its batches
//   trainer_program run FOLDER EPOCHS OUT [MILLISECONDS]              trains with checkpoints in FOLDER, a batch taking so long;
//                                                                     rank 0 writes the weights to OUT. Prints "step N" and
//                                                                     "ended by REASON at N"
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/state/python_state.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/run/seed_everything.h>
#include <cohort/train/trainer/callback.h>
#include <cohort/train/trainer/trainer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace checkpoint = cohort::checkpoint;
namespace train = cohort::train;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double drop) : dropout(drop) {
    register_module("first", first);
    register_module("second", second);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("third", third);
  }
  at::Tensor forward(const at::Tensor& x) { return third(dropout(at::relu(norm(second(at::relu(first(x))))))); }
  torch::nn::Linear first{20, 64}, second{64, 64}, third{64, 5};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({64})};
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Net);

struct Classify {
  explicit Classify(double drop)
      : model(drop), optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)) {}
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }
  Net model;
  cohort::optim::SGD optimizer;
};

struct Watch : train::Callback {
  void on_train_batch_end(train::Trainer& trainer, const train::StepReport& report) override {
    losses.push_back(report.loss.item<double>());
    if (pause.count() == 0) return;
    if (trainer.is_first_rank()) std::cout << "step " << trainer.step() << std::endl;
    std::this_thread::sleep_for(pause);
  }
  std::vector<double> losses;
  std::chrono::milliseconds pause{0};
};

int write_losses(char** argv) {
  const auto from = checkpoint::load(argv[4]).toGenericDict();
  Classify task(/*drop=*/0.0);
  checkpoint::load_state_dict(*task.model, checkpoint::tensors_in(from.at("model")));
  const cohort::data::TensorDataset data(from.at("x").toTensor(), from.at("y").toTensor());
  auto watch = std::make_shared<Watch>();
  train::Trainer trainer({.strategy = {.kind = argv[1]},
                          .precision = argv[2],
                          .max_epochs = 2,
                          .gradient_accumulation_steps = std::atoll(argv[3]),
                          .gradient_clip_norm = 1.0,
                          .seed = 0,
                          .callbacks = {watch},
                          .progress = false});
  trainer.fit(task, cohort::data::DataLoader(data, {.batch_size = 4, .shuffle = true}));
  checkpoint::StateDict losses;
  losses.insert("losses", torch::tensor(watch->losses, torch::kDouble));
  checkpoint::save_file(losses, argv[5] + ("." + std::to_string(trainer.rank())));
  return 0;
}

int run(int argc, char** argv) {
  train::seed_everything(1);
  Classify task(/*drop=*/0.1);
  const cohort::data::TensorDataset data(torch::randn({96, 20}), torch::randint(5, {96}, torch::kLong));
  auto watch = std::make_shared<Watch>();
  watch->pause = std::chrono::milliseconds(argc > 4 ? std::atoi(argv[4]) : 0);
  train::Trainer trainer({.max_epochs = std::atoll(argv[2]),
                          .seed = 1,
                          .checkpoint = {.folder = argv[1], .every_steps = 3},
                          .callbacks = {watch},
                          .progress = false});
  const auto result =
      trainer.fit(task, cohort::data::DataLoader(data, {.batch_size = 4, .shuffle = true, .num_workers = 1}));
  if (trainer.is_first_rank()) {
    std::cout << "ended by " << result.reason << " at " << result.steps << std::endl;
    checkpoint::save_file(checkpoint::state_dict(*task.model), argv[3]);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "losses" && argc == 7) return write_losses(argv + 1);
  if (mode == "run" && argc >= 5) return run(argc - 1, argv + 1);
  return 2;
}
