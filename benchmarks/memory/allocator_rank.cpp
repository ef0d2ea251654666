// The process of a side of `allocator`: training steps under the allocator of its environment. Commands: "copy CASE" builds
// module and data; "run ours WARM STEPS" answers with the milliseconds per step; "faults" with the page faults per step of the
// last run; "memory" with the process's peak resident set, in MiB; "mixed" allocates and frees tensors of sizes that do not
// repeat, and answers with the peak memory divided by the peak of live bytes.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/models/gpt.h"

namespace cohort::bench {
namespace {

namespace functional = torch::nn::functional;

long num_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double status_mib(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return std::stod(line.substr(key.size())) / 1024;
  }
  return 0;
}

// Sizes from 64 KiB to 64 MiB, uniform on a logarithmic scale, like the activations of a model with inputs of different lengths.
double run_mixed_sizes() {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(0, 10);
  std::vector<at::Tensor> live(24);
  const double before = status_mib("VmRSS:");
  double now = 0, most_live = 0, most = 0;
  for (int i = 0; i < 1500; ++i) {
    auto& slot = live[random() % live.size()];
    if (slot.defined()) now -= static_cast<double>(slot.nbytes());
    slot.reset();
    slot = at::ones({static_cast<int64_t>(16384 * std::exp2(exponent(random)))});
    now += static_cast<double>(slot.nbytes());
    most_live = std::max(most_live, now);
    most = std::max(most, status_mib("VmRSS:") - before);
  }
  return most * (1 << 20) / most_live;
}

class AllocatorRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    int num_warm = 0, num_steps = 0;
    words >> verb >> name >> num_warm >> num_steps;
    if (verb == "copy") return copy(name);
    if (verb == "run") return run(num_warm, num_steps);
    if (verb == "faults") return std::to_string(faults_per_step_);
    if (verb == "mixed") return std::to_string(run_mixed_sizes());
    return std::to_string(status_mib("VmHWM:"));
  }

 private:
  template <class Net>
  void take(const Net& net) {
    optimizer_ = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  }

  std::string copy(const std::string& name) {
    torch::manual_seed(7);
    if (name == "resnet18") {
      auto net = models::resnet18({.num_classes = 10}).ptr();
      const auto images = at::randn({16, 3, 64, 64}), labels = at::randint(10, {16}, at::kLong);
      loss_ = [=]() mutable { return functional::cross_entropy(net->forward(images), labels); };
      take(net);
    } else if (name == "gpt-14m") {
      models::GPT net(
          models::GPTOptions{.block_size = 256, .vocab_size = 4096, .n_layer = 6, .n_head = 6, .n_embd = 384});
      const auto tokens = at::randint(4096, {1, 256}, at::kLong), next = at::randint(4096, {256}, at::kLong);
      loss_ = [=]() mutable { return functional::cross_entropy(net->forward(tokens).flatten(0, 1), next); };
      take(net);
    } else {
      const int64_t width = name == "mlp-4x4096" ? 4096 : 1024;
      torch::nn::Sequential net;
      for (int layer = 0; layer < 4; ++layer) {
        net->push_back(torch::nn::Linear(width, width));
        net->push_back(torch::nn::ReLU());
      }
      const auto input = at::randn({32, width}), target = at::randn({32, width});
      loss_ = [=]() mutable { return functional::mse_loss(net->forward(input), target); };
      take(net);
    }
    return "ok";
  }

  std::string run(int num_warm, int num_steps) {
    for (int i = 0; i < num_warm; ++i) step();
    const auto faults = num_faults();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < num_steps; ++i) step();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    faults_per_step_ = static_cast<double>(num_faults() - faults) / num_steps;
    return std::to_string(elapsed.count() * 1e3 / num_steps);
  }

  void step() {
    optimizer_->zero_grad();
    loss_().backward();
    optimizer_->step();
  }

  std::function<at::Tensor()> loss_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  double faults_per_step_ = 0;
};

}  // namespace

int run_allocator_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  if (base::get_env("COHORT_SHARED_ALLOCATOR") == "1") comm::use_shared_allocator();
  AllocatorRank rank;
  serve_commands(arguments.at(1), [&](const std::string& command) { return rank.answer(command); });
  return 0;
}

}  // namespace cohort::bench
