// Trains eight square layers by AdamW, as fsdp_memory_test.py asks for: "alone" (one process with the batches of four ranks) or
// "fully_shard" (a rank of four). The second argument: how many MiB of memory it may have beside what it has before there is a
// model, or 0 for no limit (RLIMIT_DATA: private memory that can be written). Prints from rank 0 the mean loss of each step, and
// from each rank how many KiB it has of all memory beside that, its part of shared memory among it: "held KIB". Run by `cohort
// run`.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/fsdp/fully_shard.h"

namespace {

constexpr int kLayers = 8;
constexpr int kSteps = 3;
constexpr int kRanks = 4;
constexpr int64_t kWidth = 1024;

// The sum of these fields of a file in /proc/self.
long kib_in(const std::string& file, const std::vector<std::string>& fields) {
  std::ifstream lines("/proc/self/" + file);
  long sum = 0;
  for (std::string line; std::getline(lines, line);) {
    for (const auto& field : fields) {
      if (line.starts_with(field + ":")) sum += std::stol(line.substr(field.size() + 1));
    }
  }
  return sum;
}

long held_kib() { return kib_in("smaps_rollup", {"Pss_Anon", "Pss_Shmem"}); }

void limit_memory(long num_mib) {
  const auto bytes = static_cast<rlim_t>(kib_in("status", {"VmData"}) + num_mib * 1024) * 1024;
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) std::exit(3);
}

struct LayersImpl : torch::nn::Module {
  /// On the meta device a rank never has a whole model for itself.
  explicit LayersImpl(c10::Device device) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto empty = at::empty({kWidth, kWidth}, at::TensorOptions(device));
      weights.push_back(register_parameter("weight" + std::to_string(layer), empty));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& weight : weights) x = torch::tanh(torch::matmul(x, weight.t()));
    return x;
  }
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(Layers);

void initialize(const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  weight.uniform_(-0.03, 0.03, generator);
}

at::Tensor batch_of(int rank, int step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 * step + rank);
  return at::randn({2, kWidth}, generator, at::kFloat);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool is_alone = std::string(argv[1]) == "alone";
  const long num_mib = std::stol(argv[2]);
  at::set_num_threads(1);
  cohort::init_process_group({.backend = "shm"});
  const int rank = cohort::get_rank();
  const auto held_before = held_kib();
  if (num_mib > 0) limit_memory(num_mib);

  Layers net(c10::Device(is_alone ? at::kCPU : at::kMeta));
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const at::Tensor&)> forward;
  if (is_alone) {
    parameters = net->parameters();
    for (const auto& parameter : parameters) initialize(parameter);
    forward = [net](const at::Tensor& x) mutable { return net->forward(x); };
  } else {
    auto model = cohort::fully_shard(net);
    model->write([](const std::string&, const at::Tensor& full) { initialize(full); });
    parameters = model->parameters();
    forward = [model](const at::Tensor& x) mutable { return model(x); };
  }
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    std::vector<at::Tensor> losses;
    for (int batch = 0; batch < kRanks; ++batch) {
      if (!is_alone && batch != rank) continue;
      const auto input = batch_of(batch, step);
      losses.push_back((forward(input) - input).square().mean());
    }
    const auto loss = at::stack(losses).mean();
    loss.backward();
    optimizer.step();
    auto sum = loss.detach().clone();
    cohort::all_reduce(sum);
    if (rank == 0) std::printf("loss %.6f\n", sum.item<double>() / cohort::get_world_size());
  }
  cohort::barrier();
  std::printf("held %ld\n", held_kib() - held_before);
  std::fflush(stdout);
  cohort::barrier();
  forward = nullptr;
  cohort::destroy_process_group();
  return 0;
}
