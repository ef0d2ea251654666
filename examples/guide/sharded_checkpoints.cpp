// The programs of docs/guide/sharded_checkpoints.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/sharded/async_save.h>
#include <cohort/checkpoint/sharded/convert.h>
#include <cohort/checkpoint/sharded/sharded_checkpoint.h>
#include <cohort/checkpoint/state/distributed_state.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace checkpoint = cohort::checkpoint;

// Returns the model and its optimizer in one state, which shares their tensors.
checkpoint::ShardedStateDict state_of(const torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                                      int64_t step) {
  checkpoint::ShardedStateDict state;
  const auto [weights, moments] = checkpoint::get_state_dict(model, optimizer);
  for (const auto& item : weights) state.insert("model." + item.key(), item.value());
  for (const auto& item : moments) state.insert("optimizer." + item.key(), item.value());
  state.insert("step", checkpoint::StateValue(c10::IValue(step)));
  return state;
}

void save_and_load(const std::string& folder) {
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1));
  auto model = cohort::fully_shard(net);
  torch::optim::AdamW optimizer(model->parameters());

  checkpoint::save_sharded(state_of(*model, optimizer, /*step=*/100), folder);

  checkpoint::ShardedStateDict state = state_of(*model, optimizer, 0);
  checkpoint::load_sharded(state, folder);
  const int64_t step = state["step"].value.toInt();
  TORCH_CHECK(step == 100);
}

void save_while_training(const std::string& folder) {
  auto model = cohort::fully_shard(torch::nn::Linear(8, 1));
  torch::optim::AdamW optimizer(model->parameters());
  checkpoint::AsyncSave save = checkpoint::async_save(state_of(*model, optimizer, 0), folder);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model(torch::ones({4, 8})).sum().backward();
    optimizer.step();
  }
  save.wait();
  const double seconds = std::chrono::duration<double>(save.staging_time()).count();
  if (cohort::get_rank() == 0) std::cout << "training stood still for " << seconds << " s\n";
}

void convert(const std::string& folder) {
  checkpoint::consolidate(folder, folder + ".safetensors");
  checkpoint::convert_to_dcp(folder, folder + ".dcp");
  checkpoint::dcp_to_torch_save(folder + ".dcp", folder + ".pt");
}

void say_what_is_wrong(const std::string& folder) {
  checkpoint::ShardedStateDict state;
  state.insert("model.0.wieght", torch::zeros({32, 8}));
  try {
    checkpoint::load_sharded(state, folder);
  } catch (const checkpoint::CheckpointException& error) {
    for (const auto& [rank, reason] : error.failures()) std::cerr << "rank " << rank << ": " << reason << "\n";
  }
}

}  // namespace

void run_sharded_checkpoints() {
  cohort::init_process_group();
  // The ranks share a folder, named by the first one.
  at::Tensor writer = torch::tensor(static_cast<int64_t>(getpid()));
  cohort::broadcast(writer, /*src=*/0);
  const auto folder =
      std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(writer.item<int64_t>()));
  save_and_load(folder / "run");
  save_while_training(folder / "async");
  if (cohort::get_rank() == 0) convert(folder / "run");
  say_what_is_wrong(folder / "run");
  cohort::barrier();
  std::filesystem::remove_all(folder);
  cohort::destroy_process_group();
}

}  // namespace guide
