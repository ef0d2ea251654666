// The programs of docs/guide/checkpointer.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/checkpointer/checkpointer.h>
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/collectives/collectives.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace checkpoint = cohort::checkpoint;

// Returns the parameters by name.
checkpoint::ShardedStateDict state_of(const torch::nn::Linear& model) {
  checkpoint::ShardedStateDict state;
  for (const auto& item : checkpoint::state_dict(*model)) state.insert(item.key(), item.value());
  return state;
}

void train_one_step(torch::nn::Linear& model, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  model->forward(torch::ones({2, 4})).sum().backward();
  optimizer.step();
}

int64_t train_with_checkpoints(const std::string& folder, int64_t last_step) {
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);

  checkpoint::CheckpointerOptions options;
  options.every_steps = 2;
  options.every = std::chrono::minutes(10);
  options.stop_signals = {SIGTERM, SIGINT};
  options.keep_last = 2;
  options.keep_every = 1000;
  checkpoint::Checkpointer checkpoints(folder, options);

  checkpoint::ShardedStateDict state = state_of(model);
  int64_t step = checkpoints.load_latest(state).value_or(0);
  while (step < last_step && !checkpoints.stop_requested()) {
    train_one_step(model, optimizer);
    checkpoints.maybe_save([&] { return state_of(model); }, ++step);
  }
  checkpoints.wait();
  return step;
}

void keep_the_best(const std::string& folder, torch::nn::Linear& model) {
  checkpoint::Checkpointer checkpoints(folder, {.keep_last = 1, .keep_best = 1, .highest_is_best = true});
  const double accuracies[] = {0.7, 0.9, 0.8};
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    checkpoints.save(state_of(model), epoch, {.metric = accuracies[epoch], .metadata = {{"run", "a"}}});
  }
  checkpoints.wait();
  checkpoint::ShardedStateDict state = state_of(model);
  const checkpoint::SavedCheckpoint best = checkpoints.load(state, 1);
  TORCH_CHECK(best.info.metric == 0.9 && checkpoints.latest()->step == 2);
}

void go_on_when_the_disk_is_full(const std::string& folder, torch::nn::Linear& model) {
  checkpoint::CheckpointerOptions options;
  options.when_busy = checkpoint::WhenBusy::kRefuse;
  options.on_error = checkpoint::OnSaveError::kContinue;
  checkpoint::Checkpointer checkpoints(folder, options);
  if (!checkpoints.save(state_of(model), 7)) std::cerr << "the previous save is still running\n";
  checkpoints.wait();
  if (!checkpoints.last_error().empty()) std::cerr << "trains on without a checkpoint\n";
}

void save_when_an_exception_comes(const std::string& folder, torch::nn::Linear& model) {
  checkpoint::Checkpointer checkpoints(folder, {.snapshot_every_steps = 1});
  try {
    checkpoints.run([&] {
      for (int64_t step = 1;; ++step) {
        TORCH_CHECK(step < 3, "no more data");
        checkpoints.maybe_save([&] { return state_of(model); }, step);
      }
    });
  } catch (const c10::Error&) {
    TORCH_CHECK(checkpoints.latest()->step == 2);
  }
}

void write_in_a_format_of_your_own(const std::string& folder, torch::nn::Linear& model) {
  checkpoint::CheckpointFormat format;
  format.save = [](const checkpoint::ShardedStateDict& state, const std::string& to, const cohort::Group&) {
    const std::string name = "rank-" + std::to_string(cohort::get_rank()) + ".safetensors";
    checkpoint::StateDict tensors;
    for (const auto& item : state) tensors.insert(item.key(), item.value().tensor);
    checkpoint::save_file(tensors, to + "/" + name);
    return std::vector<std::string>{name};
  };
  format.load = [](checkpoint::ShardedStateDict& state, const std::string& from, const cohort::Group&) {
    const std::string name = "rank-" + std::to_string(cohort::get_rank()) + ".safetensors";
    const checkpoint::StateDict tensors = checkpoint::load_file(from + "/" + name);
    torch::NoGradGuard no_grad;
    for (auto& item : state) item.value().tensor.copy_(tensors[item.key()]);
  };
  checkpoint::Checkpointer checkpoints(folder, {.format = format});
  checkpoints.save(state_of(model), 1);
  checkpoint::ShardedStateDict state = state_of(model);
  TORCH_CHECK(checkpoints.load_latest(state) == 1);
}

}  // namespace

void run_checkpointer() {
  cohort::init_process_group();
  // The same name on all ranks.
  at::Tensor number = torch::tensor(static_cast<int64_t>(getpid()));
  cohort::broadcast(number, /*src=*/0);
  const auto folder =
      std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(number.item<int64_t>()));
  TORCH_CHECK(train_with_checkpoints(folder / "a", 4) == 4);
  TORCH_CHECK(train_with_checkpoints(folder / "a", 6) == 6);
  torch::nn::Linear model(4, 1);
  keep_the_best(folder / "b", model);
  go_on_when_the_disk_is_full(folder / "c", model);
  save_when_an_exception_comes(folder / "d", model);
  write_in_a_format_of_your_own(folder / "e", model);
  cohort::barrier();
  if (cohort::get_rank() == 0) std::filesystem::remove_all(folder);
  cohort::destroy_process_group();
}

}  // namespace guide
