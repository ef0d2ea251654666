// Pipelines over the devices of one process, and over ranks with a device each.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/devices/in_stream.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using PipelineDevices = DeviceTest;
using test::drawn;
using test::require_near;

constexpr int kNumPipelineParts = 4;

struct WavyImpl : torch::nn::Module {
  explicit WavyImpl(uint64_t seed) : linear(register_module("linear", torch::nn::Linear(6, 6))) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.copy_(drawn(parameter.sizes().vec(), seed++) / 3);
  }
  at::Tensor forward(at::Tensor x) { return x + linear(x).tanh(); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Wavy);

// Stages of one process, or of a rank; on the CPU first, then on devices.
struct WavyPipeline {
  std::vector<Wavy> blocks;
  std::vector<PipelineStage> stages;
  void add(int index, int num_stages, const c10::Device& device, const Group& group = {}) {
    Wavy block(static_cast<uint64_t>(10 * index + 1));
    block->to(device);
    stages.emplace_back(block, index, num_stages, PipelineStageOptions{.group = group});
    blocks.push_back(block);
  }
};

PipelineOptions with_squares() {
  return {.loss_fn = loss_of([](const at::Tensor& x, const at::Tensor& target) { return at::mse_loss(x, target); })};
}

std::vector<TensorList> cpu_gradients(int num_stages) {
  std::vector<Wavy> blocks;
  for (int i = 0; i < num_stages; ++i) blocks.emplace_back(static_cast<uint64_t>(10 * i + 1));
  const auto xs = drawn({9, 6}, 100).tensor_split(kNumPipelineParts),
             ts = drawn({9, 6}, 200).tensor_split(kNumPipelineParts);
  for (size_t i = 0; i < xs.size(); ++i) {
    at::Tensor x = xs[i];
    for (auto& block : blocks) x = block(x);
    (at::mse_loss(x, ts[i]) / kNumPipelineParts).backward();
  }
  std::vector<TensorList> gradients;
  for (auto& block : blocks) {
    gradients.emplace_back();
    for (const at::Tensor& parameter : block->parameters()) gradients.back().push_back(parameter.grad());
  }
  return gradients;
}

void require_steps(WavyPipeline& pipeline, const std::string& schedule_name, bool is_first_rank) {
  const int num_stages = pipeline.stages.front().num_stages();
  const auto expected = cpu_gradients(num_stages);
  PipelineSchedule schedule(schedule_name, pipeline.stages, kNumPipelineParts, with_squares());
  for (int step = 0; step < 2; ++step) {
    for (auto& block : pipeline.blocks) block->zero_grad();
    schedule.step(is_first_rank ? TensorList{drawn({9, 6}, 100)} : TensorList(), {.target = drawn({9, 6}, 200)});
    for (size_t i = 0; i < pipeline.blocks.size(); ++i) {
      const auto parameters = pipeline.blocks[i]->parameters();
      const auto& wanted = expected[static_cast<size_t>(pipeline.stages[i].stage_index())];
      for (size_t j = 0; j < wanted.size(); ++j)
        require_near(parameters[j].grad().cpu(), wanted[j], 1e-5, schedule_name);
    }
  }
}

TEST_F(PipelineDevices, StagesOfOneProcess) {
  for (const char* const name : {"Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"}) {
    WavyPipeline pipeline;
    for (int stage = 0; stage < 2; ++stage) pipeline.add(stage, 2, device(stage));
    require_steps(pipeline, name, true);
    const InStream side(new_stream(0));
    require_steps(pipeline, name, true);
  }
}

TEST_F(PipelineDevices, RanksWithADeviceEach) {
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    for (const char* const name : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
      WavyPipeline pipeline;
      const bool is_single = std::string(name) == "1F1B";
      const int num_stages = is_single ? 2 : 4;
      pipeline.add(rank, num_stages, devices.first, group);
      if (!is_single) {
        pipeline.add(std::string(name) == "ZBVZeroBubble" ? 3 - rank : rank + 2, num_stages, devices.first, group);
      }
      require_steps(pipeline, name, rank == 0);
    }
  });
}

}  // namespace
}  // namespace cohort::sim
