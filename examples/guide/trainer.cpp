// The programs of docs/guide/trainer.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/pipeline/pipeline_schedule.h>
#include <cohort/parallel/pipeline/split.h>
#include <cohort/train/metrics/accuracy.h>
#include <cohort/train/optim/factor_schedulers.h>
#include <cohort/train/run/seed_everything.h>
#include <cohort/train/strategy/accelerator.h>
#include <cohort/train/strategy/pipeline_step.h>
#include <cohort/train/trainer/callback.h>
#include <cohort/train/trainer/trainer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace F = torch::nn::functional;
namespace train = cohort::train;
using cohort::data::DataLoader;
using cohort::data::TensorDataset;

struct Classify {
  torch::nn::Sequential model{torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 3)};
  cohort::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(1e-2)};
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) { return F::cross_entropy(scores, labels); }
};

// The largest of the first three numbers is the class.
TensorDataset<2> numbers(int64_t count) {
  const at::Tensor x = torch::randn({count, 8});
  return TensorDataset(x, x.slice(1, 0, 3).argmax(1));
}

void train_a_task() {
  train::seed_everything(1);
  const DataLoader train_data(numbers(512), {.batch_size = 16, .shuffle = true});
  const DataLoader held_out(numbers(100), {.batch_size = 16});

  Classify task;
  train::Trainer trainer({.max_epochs = 3, .seed = 1});
  const train::FitResult result = trainer.fit(task, train_data, held_out);
  if (trainer.is_first_rank()) std::cout << result.steps << " steps, " << result.samples_per_second << " samples/s\n";
  const train::Metrics test = trainer.test(task, held_out);
  TORCH_CHECK(test.front().first == "test/loss");
}

void schedulers_and_metrics(const DataLoader<TensorDataset<2>>& train_data,
                            const DataLoader<TensorDataset<2>>& held_out) {
  torch::nn::Sequential net(torch::nn::Linear(8, 3));
  cohort::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  cohort::optim::StepLR decay(optimizer, /*step_size=*/10);
  train::Task task{
      .model = net,
      .loss = [](const at::Tensor& scores, const at::Tensor& labels) { return F::cross_entropy(scores, labels); },
      .optimizer = &optimizer,
      .schedulers = {train::every_step(decay)},
      .metrics = {{"accuracy", train::Accuracy()}}};
  train::Trainer trainer({.max_epochs = 2, .gradient_accumulation_steps = 2, .gradient_clip_norm = 1.0});
  trainer.fit(task, train_data, held_out);
  TORCH_CHECK(trainer.metric("validation/accuracy") > 0.4);
}

// A task with its own kind of batches.
struct Reconstruct {
  torch::nn::Sequential model{torch::nn::Linear(8, 4), torch::nn::Linear(4, 8)};
  cohort::optim::AdamW optimizer{model->parameters()};
  train::StepOutput step(torch::nn::SequentialImpl& net, std::tuple<at::Tensor, at::Tensor>& batch) {
    const at::Tensor output = net.forward(std::get<0>(batch));
    return {.loss = F::mse_loss(output, std::get<0>(batch)), .output = output, .target = std::get<0>(batch)};
  }
};

void checkpoints_and_stopping(const std::string& folder, const DataLoader<TensorDataset<2>>& train_data,
                              const DataLoader<TensorDataset<2>>& held_out) {
  Reconstruct task;
  train::TrainerOptions options;
  options.max_epochs = 4;
  options.checkpoint = {.folder = folder, .every_steps = 10, .keep_last = 2, .keep_best = 1};
  options.callbacks = {std::make_shared<train::EarlyStopping>(train::EarlyStoppingOptions{.patience = 2})};
  options.log_folder = folder + "/logs";
  train::Trainer trainer(options);
  trainer.fit(task, train_data, held_out);  // resumes from the folder's newest checkpoint
}

// A task whose model is a stage of a pipeline.
struct InStages {
  torch::nn::Sequential model;
  cohort::optim::AdamW* optimizer;
  cohort::PipelineSchedule* pipeline;

  using Batch = std::tuple<at::Tensor, at::Tensor>;
  train::StepOutput step(torch::nn::SequentialImpl&, Batch& batch) {
    return train::pipeline_step(*pipeline, std::get<0>(batch), std::get<1>(batch));
  }
  train::StepOutput evaluate(torch::nn::SequentialImpl&, Batch& batch) {
    return train::pipeline_evaluation(*pipeline, std::get<0>(batch), std::get<1>(batch), loss, /*num_rows=*/8);
  }
  static at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return F::cross_entropy(scores, labels);
  }
};

void train_stages(const DataLoader<TensorDataset<2>>& train_data, const DataLoader<TensorDataset<2>>& held_out) {
  train::Trainer trainer({.strategy = {.kind = "fsdp"}, .dims = {.pp = 2}, .max_epochs = 3, .gradient_clip_norm = 1.0});
  const auto pp = (*trainer.mesh())["pp"];
  const int rank = static_cast<int>(pp.local_rank());
  train::seed_everything(1);  // all ranks make the same model
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 3));
  const auto part = cohort::pipeline::split_sequential(net, 2).at(pp.local_rank());
  const cohort::PipelineStage stage(part, rank, 2, {.group = pp.group()});
  cohort::PipelineSchedule schedule("1F1B", {stage}, /*num_microbatches=*/4,
                                    {.loss_fn = cohort::loss_of(InStages::loss)});
  cohort::optim::AdamW optimizer(part->parameters(), torch::optim::AdamWOptions(1e-2));
  InStages task{part, &optimizer, &schedule};
  trainer.fit(task, train_data, held_out);
  TORCH_CHECK(trainer.metric("validation/loss").value() < 1.0);
}

struct PrintNorm : train::Callback {
  void on_before_optimizer_step(train::Trainer& trainer) override {
    const at::Tensor norm =
        cohort::nn::utils::get_total_norm(cohort::nn::utils::gradients_of(trainer.strategy().parameters()));
    if (trainer.step() % 100 == 0) trainer.print("norm " + std::to_string(norm.item<double>()));
  }
};

void find_settings(const DataLoader<TensorDataset<2>>& train_data) {
  Classify task;
  train::Trainer trainer({.max_epochs = 1, .callbacks = {std::make_shared<PrintNorm>()}});
  const train::LearningRateResult rates = trainer.find_learning_rate(task, train_data, {.first = 1e-5, .steps = 30});
  const train::BatchSizeResult sizes = trainer.find_batch_size(task, train_data, {.first = 8, .max = 64});
  if (trainer.is_first_rank()) std::cout << rates.suggestion.value_or(0) << ", " << sizes.fastest.value_or(0) << "\n";
  trainer.fit(task, train_data);
}

void train_by_hand(const DataLoader<TensorDataset<2>>& train_data) {
  Classify task;
  train::Accelerator accelerator({.precision = "bf16-mixed", .gradient_accumulation_steps = 2});
  auto [model, optimizer, loader] = accelerator.prepare(task.model, task.optimizer, train_data);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& [input, target] : loader) {
      accelerator.accumulate();
      const at::Tensor loss = task.loss(model(input), target);
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(1.0);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  accelerator.print("done");
}

}  // namespace

void run_trainer() {
  cohort::init_process_group();
  // The same name on all ranks.
  at::Tensor number = torch::tensor(static_cast<int64_t>(getpid()));
  cohort::broadcast(number, /*src=*/0);
  const auto folder =
      std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(number.item<int64_t>()));
  train_a_task();
  train::seed_everything(2);  // all ranks have the same data
  const DataLoader train_data(numbers(256), {.batch_size = 8, .shuffle = true});
  const DataLoader held_out(numbers(50), {.batch_size = 8});
  schedulers_and_metrics(train_data, held_out);
  checkpoints_and_stopping(folder / "run", train_data, held_out);
  train_stages(train_data, held_out);
  find_settings(train_data);
  train_by_hand(train_data);
  cohort::barrier();
  if (cohort::get_rank() == 0) std::filesystem::remove_all(folder);
  cohort::destroy_process_group();
}

}  // namespace guide
