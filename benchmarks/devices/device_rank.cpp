// A rank on this machine's accelerator; device_rank.py is the same program in Python.
//
//   device_rank step SIZE DTYPE FILE   training steps of a GPT with DistributedDataParallel and a fused AdamW; SIZE: small (as in
//                                      train_gpt) or gpt2; DTYPE: float32 or bfloat16 (autocast); writes first weights to FILE
//   device_rank all-reduce BACKEND     all-reduces of float32 tensors on the device
//
// Rank 0 prints the first losses, and the milliseconds of a step and of the host's part in it.
#include <ATen/DeviceAccelerator.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/group/device.h>
#include <cohort/models/gpt.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/precision/autocast.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/support/statistics.h"

namespace {

using cohort::bench::median;
using cohort::models::GPT;
using cohort::models::GPTImpl;

constexpr int kBlocks = 7, kSteps = 10, kFirstSteps = 3;

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void wait_for_device() { at::accelerator::synchronizeDevice(cohort::current_device().index()); }

struct StepTimes {
  std::vector<double> all, host;
};

// Times one call, in blocks of `count`.
template <class Call>
StepTimes time_calls(int count, Call call) {
  StepTimes times;
  for (int block = 0; block <= kBlocks; ++block) {
    wait_for_device();
    cohort::barrier();
    wait_for_device();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) call();
    const double host = milliseconds_since(begin);
    wait_for_device();
    if (block == 0) continue;
    times.host.push_back(host / count);
    times.all.push_back(milliseconds_since(begin) / count);
  }
  return times;
}

class Steps {
 public:
  Steps(bool is_small, bool has_autocast) : has_autocast_(has_autocast) {
    const cohort::models::GPTOptions options{.block_size = is_small ? 128 : 1024,
                                             .n_layer = is_small ? 3 : 12,
                                             .n_head = is_small ? 3 : 12,
                                             .n_embd = is_small ? 144 : 768};
    torch::manual_seed(1);
    net_ = GPT(options);
    net_->to(cohort::current_device());
    model_ = cohort::DistributedDataParallel<GPTImpl>(net_);
    optimizer_.emplace(net_->parameters(), torch::optim::AdamWOptions(1e-4));
    const auto places = at::arange(8 * (options.block_size + 1));
    tokens_ = (places * places * 7 + places * 3).remainder(256).view({8, -1}).to(cohort::current_device());
  }

  void save(const std::string& file) {
    cohort::checkpoint::StateDict weights;
    for (const auto& parameter : net_->named_parameters()) weights.insert(parameter.key(), parameter.value().detach());
    cohort::checkpoint::save(weights, file);
  }

  at::Tensor run() {
    at::Tensor loss;
    {
      const cohort::Autocast autocast(cohort::current_device().type(),
                                      {.dtype = at::kBFloat16, .enabled = has_autocast_});
      const auto logits = model_(tokens_.slice(1, 0, -1));
      loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens_.slice(1, 1).flatten());
    }
    loss.backward();
    optimizer_->step();
    optimizer_->zero_grad();
    return loss.detach();
  }

 private:
  bool has_autocast_;
  GPT net_{nullptr};
  cohort::DistributedDataParallel<GPTImpl> model_{nullptr};
  std::optional<cohort::optim::AdamW> optimizer_;
  at::Tensor tokens_;
};

void time_steps(const std::string& size, const std::string& dtype, const std::string& file) {
  cohort::init_process_group();
  Steps steps(size == "small", dtype == "bfloat16");
  if (cohort::get_rank() == 0) steps.save(file);
  std::printf("cohort %s %s on %s, losses", size.c_str(), dtype.c_str(), cohort::get_backend_config().c_str());
  for (int i = 0; i < kFirstSteps; ++i) std::printf(" %.6f", steps.run().item<double>());
  const auto times = time_calls(kSteps, [&] { steps.run(); });
  std::printf(", step %.3f ms, host %.3f ms\n", median(times.all), median(times.host));
}

void time_all_reduces(const char* backend) {
  cohort::init_process_group(backend);
  for (const int64_t kib : {4, 1024, 16 * 1024, 64 * 1024, 256 * 1024}) {
    const auto tensor = at::zeros({kib * 256}, at::TensorOptions(cohort::current_device()));
    const auto times = time_calls(kib > 1024 ? 3 : 20, [&] { cohort::all_reduce(tensor); });
    const double ms = median(times.all);
    if (cohort::get_rank() == 0) {
      std::printf("cohort all_reduce, %d ranks, %s, %ld KiB: %.3f ms, %.2f GB/s\n", cohort::get_world_size(), backend,
                  static_cast<long>(kib), ms, static_cast<double>(kib) * 1024 / ms / 1e6);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "step") {
      time_steps(words[1], words[2], words[3]);
    } else if (words.size() == 2 && words[0] == "all-reduce") {
      time_all_reduces(words[1].c_str());
    } else {
      std::fprintf(stderr, "usage: device_rank step SIZE DTYPE FILE | all-reduce BACKEND\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_rank: error: %s\n", error.what());
    return 1;
  }
  cohort::destroy_process_group();
}
