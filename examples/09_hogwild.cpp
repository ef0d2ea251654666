// Hogwild: several processes train one model at once, without locks and messages. share_memory puts the model in memory that all
// of them can write, spawn starts them, and each applies its own gradients to the current weights.
//
//   build/bin/examples/hogwild --nprocs 2 --epochs 4
//
// prints a line per process and epoch, each process's sum of the weights after all have finished, and the accuracy of the
// parent's model, which is the same memory, on new samples:
//   [rank 0] epoch 0 | 64 steps | loss 0.7585
//   [rank 1] all ranks have finished | sum of the weights 253.293856
//   parent: 512 steps by 2 ranks | sum of the weights 253.293856 | 97.4 % right
#include <cohort/comm/process/share_memory.h>
#include <cohort/comm/process/spawn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace {

struct Settings {
  int nprocs = 2;
  int epochs = 4;
  int batch_size = 32;
  double learning_rate = 0.05;
};

constexpr int kClasses = 10;
constexpr int kPixels = 64;
constexpr int kStepsPerEpoch = 64;

struct Batch {
  at::Tensor images;
  at::Tensor labels;
};

// Noisy copies of ten random pictures, which are the same in all processes.
class Pictures {
 public:
  explicit Pictures(uint64_t seed)
      : pictures_(at::randn({kClasses, kPixels}, at::detail::createCPUGenerator(0))),
        generator_(at::detail::createCPUGenerator(seed)) {}

  Batch draw(int count) {
    const auto labels = at::randint(kClasses, {count}, generator_, at::kLong);
    return {pictures_.index_select(0, labels) + 2.0 * at::randn({count, kPixels}, generator_), labels};
  }

 private:
  at::Tensor pictures_;
  at::Generator generator_;
};

double sum_of_weights(const torch::nn::Sequential& model) {
  double sum = 0;
  for (const auto& parameter : model->parameters()) sum += parameter.abs().sum().item<double>();
  return sum;
}

// All ranks write the counter, so it is atomic. The weights need not be: a lost update only loses one gradient.
std::atomic_ref<int64_t> steps_in(const at::Tensor& counter) { return std::atomic_ref(*counter.data_ptr<int64_t>()); }

void train(int rank, torch::nn::Sequential model, const at::Tensor& counter, const Settings& settings) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(settings.learning_rate).momentum(0.5));
  Pictures pictures(/*seed=*/1000 + rank);
  for (int epoch = 0; epoch < settings.epochs; ++epoch) {
    double sum = 0;
    for (int step = 0; step < kStepsPerEpoch; ++step) {
      const auto batch = pictures.draw(settings.batch_size);
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      steps_in(counter).fetch_add(1);
      sum += loss.item<double>();
    }
    std::printf("[rank %d] epoch %d | %d steps | loss %.4f\n", rank, epoch, kStepsPerEpoch, sum / kStepsPerEpoch);
  }
  // When no process writes any more, all must see the same weights.
  const int64_t all_steps = int64_t{1} * settings.nprocs * settings.epochs * kStepsPerEpoch;
  while (steps_in(counter) < all_steps) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::printf("[rank %d] all ranks have finished | sum of the weights %.6f\n", rank, sum_of_weights(model));
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains one model in shared memory with several processes.");
  app.add_option("--nprocs", settings.nprocs, "number of processes")->check(CLI::Range(1, 1000000));
  app.add_option("--epochs", settings.epochs, "epochs of 64 steps, per process")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", settings.batch_size, "samples per step")->check(CLI::Range(1, 1000000));
  app.add_option("--learning-rate", settings.learning_rate, "learning rate of SGD")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(kPixels, 32), torch::nn::ReLU(), torch::nn::Linear(32, kClasses));
  const auto counter = at::zeros({1}, at::kLong);
  cohort::share_memory(*model);
  cohort::share_memory(counter);
  try {
    cohort::spawn([&](int rank) { train(rank, model, counter, settings); }, settings.nprocs);
  } catch (const cohort::ProcessFailedError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  const at::NoGradGuard no_grad;
  const auto test = Pictures(/*seed=*/1).draw(1000);
  const auto right = (model->forward(test.images).argmax(1) == test.labels).sum().item<int64_t>();
  std::printf("parent: %lld steps by %d ranks | sum of the weights %.6f | %.1f %% right\n",
              static_cast<long long>(steps_in(counter)), settings.nprocs, sum_of_weights(model),
              static_cast<double>(right) / 10.0);
}
