// The programs of docs/guide/pipeline.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/models/gpt.h>
#include <cohort/models/gpt_stage.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/pipeline/pipeline_schedule.h>
#include <cohort/parallel/pipeline/split.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "guide.h"

namespace guide {
namespace {

void train_parts_of_a_net() {
  const int rank = cohort::get_rank(), num_stages = cohort::get_world_size();
  at::manual_seed(1);  // all ranks make the same model, and keep their stage of it
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 32), torch::nn::Tanh(),
                            torch::nn::Linear(32, 1));
  torch::nn::Sequential part = cohort::pipeline::split_sequential(net, num_stages)[static_cast<size_t>(rank)];
  net = nullptr;

  cohort::PipelineStage stage(part, rank, num_stages);
  cohort::PipelineSchedule schedule(
      "1F1B", {stage}, /*num_microbatches=*/4,
      {.loss_fn = cohort::loss_of([](auto& y, auto& target) { return at::mse_loss(y, target); })});
  torch::optim::AdamW optimizer(part->parameters(), 1e-2);
  const auto x = at::randn({32, 8}), target = x.sum(1, /*keepdim=*/true);
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<at::Tensor> losses;
    if (stage.is_first()) {
      schedule.step({x}, {.target = target, .losses = &losses});
    } else {
      schedule.step({}, {.target = target, .losses = &losses});
    }
    optimizer.step();
    optimizer.zero_grad();
    if (stage.is_last()) loss = at::stack(losses).mean().item<double>();
  }
  const auto outputs = stage.is_first() ? schedule.eval({x}) : schedule.eval();
  TORCH_CHECK(loss < 1 && outputs.size() == (stage.is_last() ? 1 : 0));
}

void split_by_time_or_counts(torch::nn::Sequential& net, const at::Tensor& microbatch) {
  const auto by_parameters = cohort::pipeline::split_sequential(net, 2);
  const auto by_counts = cohort::pipeline::split_sequential(net, {3, 2});
  const auto seconds = cohort::pipeline::measured_costs(net, microbatch, {.num_repeats = 3});
  const auto by_time = cohort::pipeline::split_sequential(net, cohort::pipeline::balanced_counts(seconds, 2));
  TORCH_CHECK(by_parameters[0]->size() + by_parameters[1]->size() == 5 && by_counts[1]->size() == 2 &&
              by_time.size() == 2);
}

void train_a_gpt() {
  const int rank = cohort::get_rank(), num_stages = 4;  // two for each rank
  cohort::models::GPT model(cohort::models::GPTOptions{
      .block_size = 8, .vocab_size = 16, .n_layer = 4, .n_head = 2, .n_embd = 16, .tie_weights = true});
  auto parts = cohort::models::split_gpt(model, num_stages);
  model = nullptr;

  std::vector<cohort::PipelineStage> stages;
  std::vector<at::Tensor> parameters;
  cohort::PipelineOptions options;
  for (const int index : {rank, rank + 2}) {
    auto& part = parts[static_cast<size_t>(index)];
    stages.emplace_back(part, index, num_stages);
    for (const auto& parameter : part->parameters()) parameters.push_back(parameter);
    if (part->has_embeddings()) options.tied_parameters.push_back({part->wte->weight, 0, num_stages - 1});
    if (part->has_head()) options.tied_parameters.push_back({part->lm_head->weight, num_stages - 1, 0});
  }
  parts.clear();
  options.loss_fn = cohort::loss_of(
      [](auto& logits, auto& targets) { return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten()); });
  cohort::PipelineSchedule schedule("Interleaved1F1B", stages, /*num_microbatches=*/4, options);
  torch::optim::AdamW optimizer(parameters, 1e-2);
  const auto tokens = at::arange(72).remainder(16).view({8, 9});
  double loss = 0;
  for (int step = 0; step < 20; ++step) {
    std::vector<at::Tensor> losses;
    const cohort::TensorList inputs = rank == 0 ? cohort::TensorList{tokens.narrow(1, 0, 8)} : cohort::TensorList();
    schedule.step(inputs, {.target = tokens.narrow(1, 1, 8), .losses = &losses, .return_outputs = false});
    optimizer.step();
    optimizer.zero_grad();
    if (!losses.empty()) loss = at::stack(losses).mean().item<double>();
  }
  TORCH_CHECK(loss < 2.5);
}

struct MaskedImpl : torch::nn::Module {
  MaskedImpl() : linear(register_module("linear", torch::nn::Linear(8, 8))) {}
  at::Tensor forward(at::Tensor x, at::Tensor mask) { return x + at::tanh(linear(x)) * mask; }
  torch::nn::Linear linear;
};
TORCH_MODULE(Masked);

void train_with_a_mask() {
  cohort::PipelineStage stage(Masked(), cohort::get_rank(), cohort::get_world_size());
  const auto weighted = [](auto& y, auto& target, auto& weights) { return ((y - target).square() * weights).mean(); };
  cohort::PipelineSchedule schedule("1F1B", {stage}, /*num_microbatches=*/4, {.loss_fn = cohort::loss_of(weighted)});
  const auto x = at::ones({8, 8}), mask = at::ones({8, 1}), weights = at::linspace(0, 1, 8).unsqueeze(1);
  std::vector<at::Tensor> losses;
  schedule.step(stage.is_first() ? cohort::TensorList{x} : cohort::TensorList(),
                {.target = x, .losses = &losses, .kwargs = {mask}, .loss_kwargs = {weights}});
  TORCH_CHECK(losses.size() == (stage.is_last() ? 4 : 0));
}

void look_at_schedules() {
  const auto order =
      cohort::pipeline::make_pipeline_order("1F1B", /*num_ranks=*/2, /*num_stages=*/2, /*num_microbatches=*/4);
  const auto forecast =
      cohort::pipeline::forecast_pipeline(order, 2, 4, {.forward = 1.0, .backward_input = 1.0, .backward_weight = 1.0});
  std::printf("%s%s%.0f %% of the time is lost\n", cohort::pipeline::pipeline_table(order).c_str(),
              forecast.text.c_str(), 100 * forecast.bubble);
  TORCH_CHECK(forecast.bubble > 0.19 && forecast.bubble < 0.21);
}

}  // namespace

void run_pipeline() {
  cohort::init_process_group();
  train_parts_of_a_net();
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 32), torch::nn::Tanh(),
                            torch::nn::Linear(32, 1));
  split_by_time_or_counts(net, at::ones({8, 8}));
  train_a_gpt();
  train_with_a_mask();
  look_at_schedules();
  cohort::barrier();
  cohort::destroy_process_group();
}

}  // namespace guide
