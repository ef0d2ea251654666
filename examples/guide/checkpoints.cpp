// The programs of docs/guide/checkpoints.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/optimizer_state.h>
#include <cohort/checkpoint/safetensors.h>
#include <cohort/checkpoint/state_dict.h>
#include <cohort/checkpoint/training_checkpoint.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

void save_and_load_tensors(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear model(4, 2);
  checkpoint::save_file(checkpoint::state_dict(*model), path, {{"epoch", "3"}});

  const checkpoint::StateDict tensors = checkpoint::load_file(path);
  checkpoint::load_state_dict(*model, tensors);
  const std::string epoch = checkpoint::load_metadata(path).at("epoch");
  TORCH_CHECK(epoch == "3" && tensors["weight"].equal(model->weight));
}

void save_and_load_a_model(const std::string& path) {
  torch::nn::Linear model(4, 2);
  cohort::checkpoint::save_model(*model, path);
  cohort::checkpoint::load_model(*model, path);
}

void train_and_resume(const std::string& path) {
  torch::nn::Linear net(4, 1);
  cohort::DistributedDataParallel model(net);
  torch::optim::AdamW optimizer(model->parameters());

  const bool resumes = std::filesystem::exists(path);
  cohort::barrier();  // nobody may write the first file while others still look for one
  cohort::checkpoint::TrainingProgress progress;
  if (resumes) progress = cohort::checkpoint::load_checkpoint(path, model->module(), &optimizer);

  for (int64_t step = progress.step; step < 4; ++step) {
    optimizer.zero_grad();
    model(torch::randn({8, 4})).sum().backward();
    optimizer.step();
    if (cohort::get_rank() == 0) {
      cohort::checkpoint::save_checkpoint(path, model->module(), &optimizer, {.step = step + 1});
    }
  }
}

// Every rank draws its own random numbers, so each rank's state goes into the file.
void keep_random_numbers(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  const at::Tensor mine = cohort::checkpoint::rng_state();
  cohort::TensorList states;
  for (int r = 0; r < cohort::get_world_size(); ++r) states.push_back(torch::empty_like(mine));
  cohort::all_gather(states, mine);
  if (cohort::get_rank() == 0) {
    cohort::checkpoint::TrainingProgress progress{.step = 4};
    for (size_t r = 0; r < states.size(); ++r) progress.extra.insert("rng." + std::to_string(r), std::move(states[r]));
    cohort::checkpoint::save_checkpoint(path, model, &optimizer, progress);
  }
  cohort::barrier();
  const auto progress =
      cohort::checkpoint::load_checkpoint(path, model, &optimizer, cohort::checkpoint::RestoreRng::kNo);
  cohort::checkpoint::set_rng_state(progress.extra["rng." + std::to_string(cohort::get_rank())]);
}

void go_on_with_a_schedule(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);
  const int64_t num_epochs = std::stoll(cohort::checkpoint::load_metadata(path).at("epoch"));
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) schedule.step();
  cohort::checkpoint::load_checkpoint(path, model, &optimizer);
}

void save_the_optimizer_alone(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear model(4, 2);
  torch::optim::AdamW optimizer(model->parameters());
  checkpoint::save_file(checkpoint::optimizer_state_dict(optimizer, model->named_parameters()), path);
  checkpoint::load_optimizer_state_dict(optimizer, model->named_parameters(), checkpoint::load_file(path));
}

void say_what_is_wrong(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  try {
    cohort::checkpoint::load_checkpoint(path, model, &optimizer);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << "\n";
  }
}

}  // namespace

void run_checkpoints() {
  cohort::init_process_group();
  const auto folder = std::filesystem::temp_directory_path();
  const std::string own = (folder / ("cohort_guide_" + std::to_string(getpid()))).string();
  // The rank that writes names the file for all.
  at::Tensor writer = torch::tensor(static_cast<int64_t>(getpid()));
  cohort::broadcast(writer, /*src=*/0);
  const std::string shared = (folder / ("cohort_guide_run_" + std::to_string(writer.item<int64_t>()))).string();

  save_and_load_tensors(own);
  save_and_load_a_model(own);
  save_the_optimizer_alone(own);
  train_and_resume(shared);
  cohort::barrier();
  train_and_resume(shared);
  torch::nn::Linear model(4, 1);
  torch::optim::AdamW optimizer(model->parameters());
  keep_random_numbers(shared, *model, optimizer);
  go_on_with_a_schedule(shared, *model, optimizer);
  say_what_is_wrong(own, *model, optimizer);
  cohort::barrier();
  std::filesystem::remove(own);
  std::filesystem::remove(shared);
  cohort::destroy_process_group();
}

}  // namespace guide
