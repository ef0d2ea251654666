// Each schedule on real ranks gives the losses and gradients of one process.
#include "cohort/parallel/pipeline/pipeline_schedule.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rounding.h"

namespace cohort {
namespace {

constexpr int kNumMicrobatches = 8;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : wide(register_module("wide", torch::nn::Linear(8, 16))),
        narrow(register_module("narrow", torch::nn::Linear(16, 8))) {}
  at::Tensor forward(at::Tensor x) { return x + narrow(at::relu(wide(x))); }
  torch::nn::Linear wide, narrow;
};
TORCH_MODULE(Block);

at::Tensor loss(const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); }

// A model of one block per stage, a batch that microbatches do not divide, and what one process makes of them.
struct Reference {
  explicit Reference(int num_stages) {
    torch::manual_seed(1);
    for (int i = 0; i < num_stages; ++i) blocks.emplace_back();
    inputs = at::randn({19, 8});
    target = at::randn({19, 8});
    const auto xs = inputs.tensor_split(kNumMicrobatches), ts = target.tensor_split(kNumMicrobatches);
    for (size_t i = 0; i < xs.size(); ++i) {
      const at::Tensor value = loss(forward(xs[i]), ts[i]);
      losses.push_back(value.detach());
      value.backward();
    }
    for (auto& block : blocks) {
      gradients.emplace_back();
      for (const auto& parameter : block->parameters()) gradients.back().push_back(parameter.grad() / kNumMicrobatches);
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
  std::vector<Block> blocks;
  at::Tensor inputs, target;
  std::vector<at::Tensor> losses;
  std::vector<TensorList> gradients;
};

// The sums that a number comes from, one after the other: of the blocks forward and backward, and of the rows.
void require_close(const at::Tensor& actual, const at::Tensor& expected, int num_stages, const std::string& what) {
  TORCH_CHECK(test::are_rounded_alike(actual, expected, 2 * num_stages * (8 + 16) + 19), what, " differs by ",
              (actual - expected).abs().max().item<double>());
}

// argument 0: the schedule's name.
COHORT_WORKER(pipeline_steps) {
  init_process_group();
  const std::string name = test::worker_arguments().at(0);
  const int rank = get_rank(), num_ranks = get_world_size();
  const bool is_v = name == "ZBVZeroBubble" || name == "DualPipeV", is_single = name == "GPipe" || name == "1F1B";
  const int num_stages = is_single ? num_ranks : 2 * num_ranks;
  Reference reference(num_stages);
  std::vector<int> indices = {rank};
  if (!is_single) indices.push_back(is_v ? num_stages - 1 - rank : num_ranks + rank);
  std::vector<PipelineStage> stages;
  for (const int index : indices) stages.emplace_back(reference.blocks[static_cast<size_t>(index)], index, num_stages);
  PipelineSchedule schedule(name, stages, kNumMicrobatches, {.loss_fn = loss_of(loss)});
  const bool has_first = rank == 0, has_last = indices.back() == num_stages - 1;
  const TensorList inputs = has_first ? TensorList{reference.inputs} : TensorList();
  for (int step = 0; step < 3; ++step) {  // shapes are announced in the first
    for (auto& block : reference.blocks) block->zero_grad();
    std::vector<at::Tensor> losses;
    const auto outputs = schedule.step(inputs, {.target = reference.target, .losses = &losses});
    for (const int index : indices) {
      const auto parameters = reference.blocks[static_cast<size_t>(index)]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        require_close(parameters[i].grad(), reference.gradients[static_cast<size_t>(index)][i], num_stages,
                      "a gradient");
      }
    }
    TORCH_CHECK(outputs.size() == (has_last ? 1u : 0u) && losses.size() == (has_last ? 8u : 0u));
    if (has_last) require_close(at::stack(losses), at::stack(reference.losses), num_stages, "a loss");
  }
  const auto evaluated = schedule.eval(inputs);
  if (has_last) require_close(evaluated.at(0), reference.forward(reference.inputs), num_stages, "an output");
  destroy_process_group();
}

class PipelineSchedules : public testing::TestWithParam<std::string> {};

TEST_P(PipelineSchedules, GiveTheGradientsOfOneProcess) {
  test::run_workers("pipeline_steps", {.world_size = 2, .arguments = {GetParam()}}).expect_success();
  test::run_workers("pipeline_steps", {.world_size = 4, .arguments = {GetParam()}}).expect_success();
}
INSTANTIATE_TEST_SUITE_P(Names, PipelineSchedules, testing::ValuesIn(pipeline::pipeline_schedule_names()));

}  // namespace
}  // namespace cohort
