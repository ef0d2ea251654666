// The programs of docs/guide/recovery.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/checkpoint/recovery/memory_snapshot.h>
#include <cohort/checkpoint/recovery/skip_init.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "guide.h"

namespace guide {
namespace {

void train_with_snapshots(const std::string& file, int64_t last_step) {
  torch::nn::Linear net(64, 64);
  cohort::DistributedDataParallel model(net);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));

  cohort::checkpoint::MemorySnapshot snapshot(cohort::checkpoint::snapshot_state(*net, optimizer), {.every_steps = 1});
  const cohort::checkpoint::Resumed resumed = snapshot.resume([&]() -> std::optional<int64_t> {
    if (!std::filesystem::exists(file)) return std::nullopt;
    return cohort::checkpoint::load_checkpoint(*net, &optimizer, file).step;
  });
  if (cohort::get_rank() == 0) std::cout << "resumed " << resumed.describe() << "\n";
  int64_t step = resumed.step;
  while (step < last_step) {
    optimizer.zero_grad();
    model(at::ones({4, 64})).sum().backward();
    optimizer.step();
    snapshot.step(++step);
  }
  TORCH_CHECK(step == last_step);
}

void construct_quickly() {
  std::optional<cohort::checkpoint::SkipInit> skip;
  if (cohort::checkpoint::is_restart()) skip.emplace();
  torch::nn::Linear net(64, 64);
  skip.reset();
  TORCH_CHECK(net->weight.size(0) == 64);
}

}  // namespace

void run_recovery() {
  cohort::init_process_group();
  train_with_snapshots("no such file", 3);
  construct_quickly();
  cohort::destroy_process_group();
}

}  // namespace guide
