// The programs of docs/guide/checkpoints.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <ATen/core/Dict.h>
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/optimizer/optimizer_state.h>
#include <cohort/checkpoint/optimizer/scheduler_state.h>
#include <cohort/checkpoint/state/distributed_state.h>
#include <cohort/checkpoint/state/python_state.h>
#include <cohort/checkpoint/state/rng_state.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/optim/fused_optimizers.h>
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

void save_and_load_pt_files(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear model(4, 2);
  checkpoint::save(checkpoint::state_dict(*model), path, {.versions = {{"", 1}}});

  const checkpoint::StateDict weights = checkpoint::load_tensors(path, {.map_location = c10::Device(c10::kCPU)});
  checkpoint::load_state_dict(*model, weights);
  TORCH_CHECK(weights["weight"].equal(model->weight));

  c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
  run.insert("epoch", 3);
  run.insert("weights", at::ones({2}));
  checkpoint::save(run, path, {.sync = false});
  const c10::IValue loaded = checkpoint::load(path, {.mmap = true});
  const int64_t epoch = loaded.toGenericDict().at("epoch").toInt();
  TORCH_CHECK(epoch == 3);
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
  cohort::barrier();  // no rank may write the first file while others still look for it
  cohort::checkpoint::TrainingProgress progress;
  if (resumes) progress = cohort::checkpoint::load_checkpoint(model->module(), &optimizer, path);

  for (int64_t step = progress.step; step < 4; ++step) {
    optimizer.zero_grad();
    model(torch::randn({8, 4})).sum().backward();
    optimizer.step();
    if (cohort::get_rank() == 0) {
      cohort::checkpoint::save_checkpoint(model->module(), &optimizer, path, {.step = step + 1});
    }
  }
}

// Every rank draws its own random numbers, so the file needs each rank's state.
void keep_random_numbers(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  const at::Tensor mine = cohort::checkpoint::rng_state();
  cohort::TensorList states;
  for (int r = 0; r < cohort::get_world_size(); ++r) states.push_back(torch::empty_like(mine));
  cohort::all_gather(states, mine);
  if (cohort::get_rank() == 0) {
    cohort::checkpoint::TrainingProgress progress{.step = 4};
    for (size_t r = 0; r < states.size(); ++r) progress.extra.insert("rng." + std::to_string(r), std::move(states[r]));
    cohort::checkpoint::save_checkpoint(model, &optimizer, path, progress);
  }
  cohort::barrier();
  const auto progress = cohort::checkpoint::load_checkpoint(model, &optimizer, path, {.restore_rng = false});
  cohort::checkpoint::set_rng_state(progress.extra["rng." + std::to_string(cohort::get_rank())]);
}

void go_on_with_a_schedule(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);
  const int64_t num_epochs = std::stoll(cohort::checkpoint::load_metadata(path).at("epoch"));
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) schedule.step();
  cohort::checkpoint::load_checkpoint(model, &optimizer, path);
}

void save_the_optimizer_alone(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear model(4, 2);
  torch::optim::AdamW optimizer(model->parameters());
  checkpoint::save_file(checkpoint::optimizer_state_dict(optimizer, model->named_parameters()), path);
  checkpoint::load_optimizer_state_dict(optimizer, model->named_parameters(), checkpoint::load_file(path));
}

void save_for_python(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear net(4, 2);
  cohort::optim::AdamW optimizer(net->parameters());
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);

  c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
  run.insert("model", checkpoint::python_dict(*net));
  run.insert("optimizer", checkpoint::optimizer_state_dict(optimizer));
  run.insert("schedule", checkpoint::scheduler_state_dict(schedule, optimizer));
  run.insert("rng", checkpoint::all_rng_states());
  checkpoint::save(run, path, {.metadata_entries = true});
}

void go_on_from_python(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  torch::nn::Linear net(4, 2);
  cohort::optim::AdamW optimizer(net->parameters());
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);

  const auto run = checkpoint::load(path).toGenericDict();
  checkpoint::load_state_dict(*net, checkpoint::tensors_in(run.at("model")));
  checkpoint::load_optimizer_state_dict(optimizer, run.at("optimizer"));
  checkpoint::load_scheduler_state_dict(schedule, run.at("schedule"));
  checkpoint::set_all_rng_states(run.at("rng"));
}

void go_on_in_shards(const std::string& path) {
  namespace checkpoint = cohort::checkpoint;
  auto model = cohort::fully_shard(torch::nn::Linear(4, 2));
  cohort::optim::AdamW optimizer(model->parameters());

  checkpoint::ModelAndOptimizerState state;
  if (cohort::get_rank() == 0) {  // the others get their parts from it
    const auto run = checkpoint::load(path).toGenericDict();
    state.model = checkpoint::values_in(run.at("model"));
    state.optimizer = checkpoint::flat_optimizer_state(run.at("optimizer"), *model, optimizer);
  }
  checkpoint::set_state_dict(*model, optimizer, state, {.full_state_dict = true, .broadcast_from_rank0 = true});

  state = checkpoint::get_state_dict(*model, optimizer, {.full_state_dict = true, .cpu_offload = true});
  if (cohort::get_rank() == 0) {
    c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
    run.insert("model", checkpoint::python_dict(state.model));
    run.insert("optimizer", checkpoint::nested_optimizer_state(state.optimizer, *model, optimizer));
    checkpoint::save(run, path);
  }
  cohort::barrier();
}

void say_what_is_wrong(const std::string& path, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  try {
    cohort::checkpoint::load_checkpoint(model, &optimizer, path);
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
  save_and_load_pt_files(own);
  save_and_load_a_model(own);
  save_the_optimizer_alone(own);
  save_for_python(own);
  go_on_from_python(own);
  go_on_in_shards(own);
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
