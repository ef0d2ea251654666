// DataParallel: one process trains one model on several devices. It uses all accelerators of the machine; without one, --replicas
// replicas on the CPU, each in a thread.
//
//   build/bin/examples/data_parallel --replicas 2
//
// prints
//   devices: 2 x cpu
//   epoch 1: loss 2.3245, accuracy 0.0906
//   epoch 2: ...
//   trained 3 epochs with DataParallel
#include <cohort/extras/models/small_models.h>
#include <cohort/parallel/data_parallel/data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using cohort::models::SimpleModel;
using cohort::models::SimpleModelImpl;
using cohort::nn::parallel::Devices;
using Batches = std::vector<std::pair<at::Tensor, at::Tensor>>;

constexpr int64_t kBatchSize = 32;
constexpr int64_t kNumFeatures = 128;
constexpr int64_t kNumClasses = 10;

struct EpochResult {
  double loss = 0;
  double accuracy = 0;
};

EpochResult train_epoch(cohort::DataParallel<SimpleModelImpl>& model, const Batches& batches,
                        torch::optim::Adam& optimizer) {
  model->train();
  double total_loss = 0;
  int64_t num_correct = 0;
  int64_t num_samples = 0;
  for (const auto& [inputs, labels] : batches) {
    optimizer.zero_grad();
    const at::Tensor outputs = model(inputs);  // split over all devices, gathered on the first
    const at::Tensor there = labels.to(outputs.device());
    const at::Tensor loss = torch::nn::functional::cross_entropy(outputs, there);
    loss.backward();
    optimizer.step();
    total_loss += loss.item<double>() * static_cast<double>(inputs.size(0));
    num_correct += outputs.argmax(1).eq(there).sum().item<int64_t>();
    num_samples += inputs.size(0);
  }
  const auto count = static_cast<double>(num_samples);
  return {total_loss / count, static_cast<double>(num_correct) / count};
}

void run(int num_epochs, int num_replicas) {
  torch::manual_seed(0);
  Devices devices = cohort::nn::parallel::all_devices();
  if (devices.empty()) devices = Devices(num_replicas, at::kCPU);
  std::printf("devices: %zu x %s\n", devices.size(),
              c10::DeviceTypeName(devices[0].type(), /*lower_case=*/true).c_str());

  SimpleModel net;
  net->to(devices[0]);
  cohort::DataParallel model(net, devices);
  torch::optim::Adam optimizer(net->parameters(), /*lr=*/1e-3);

  Batches batches;
  for (int i = 0; i < 10; ++i) {
    batches.emplace_back(torch::randn({kBatchSize, kNumFeatures}),
                         torch::randint(kNumClasses, {kBatchSize}, at::kLong));
  }
  for (int epoch = 1; epoch <= num_epochs; ++epoch) {
    const auto result = train_epoch(model, batches, optimizer);
    std::printf("epoch %d: loss %.4f, accuracy %.4f\n", epoch, result.loss, result.accuracy);
  }
  std::printf("trained %d epochs with DataParallel\n", num_epochs);
}

}  // namespace

int main(int argc, char** argv) {
  int num_epochs = 3;
  int num_replicas = 2;
  CLI::App app("Trains one model on several devices of this process.");
  app.add_option("--epochs", num_epochs, "how many times to go through the data")->check(CLI::Range(1, 1000000));
  app.add_option("--replicas", num_replicas, "replicas on the CPU, without an accelerator")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  run(num_epochs, num_replicas);
}
