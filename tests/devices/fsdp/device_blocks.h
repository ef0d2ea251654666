/// The net of blocks (tests/parallel/fsdp/blocks.h) on ranks with devices of their own, and its training, which is to end as that
/// of one process on the CPU does.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/devices/ddp/device_training.h"
#include "tests/parallel/fsdp/blocks.h"

namespace cohort::sim {

using BlockModel = FullySharded<fsdp::test::ShardedNet>;

/// How a net of blocks is trained.
struct BlockTraining {
  fsdp::Options options = {};
  std::function<void(BlockModel&)> set_up = {};
  std::function<void(BlockModel&)> begin_step = {};
  /// Instead of a step that changes the parameters in the current stream.
  std::function<void(BlockModel&, torch::optim::Optimizer&)> step = {};
  int num_passes = 1;       ///< backward passes in each step
  bool syncs_last = false;  ///< gradients of the last one alone are reduced
  bool clips = false;
};

constexpr int kNumSteps = 4;

/// Nothing in it waits for the device.
template <class Forward>
at::Tensor loss_of_batch(Forward forward, int rank, int64_t step) {
  const auto output = forward(fsdp::test::batch(rank, step));
  const auto target = fsdp::test::values_like(at::empty({5, 3}), 5000 + 10 * step + rank);
  return (output.to(at::kFloat) - target.to(output.device(), /*non_blocking=*/true)).square().mean();
}

/// One process that has the batches of all ranks.
inline Weights train_in_one_process(int world_size, const BlockTraining& way) {
  auto net = fsdp::test::plain_net();
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  for (int64_t step = 0; step < kNumSteps; ++step) {
    for (int pass = 0; pass < way.num_passes; ++pass) {
      std::vector<at::Tensor> losses;
      for (int rank = 0; rank < world_size; ++rank) {
        losses.push_back(loss_of_batch([&](const at::Tensor& x) { return net->forward(x); }, rank, 10 * step + pass));
      }
      at::stack(losses).mean().backward();
    }
    if (way.clips) cohort::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
    optimizer.step();
    optimizer.zero_grad();
  }
  return weights_of(*net);
}

inline fsdp::Options gathered_in(const Group& group, fsdp::Options options = {}) {
  if (!options.mesh) options.process_group = group;
  options.one_memory = false;
  return options;
}

inline BlockModel blocks_on(c10::Device device, const fsdp::Options& options) {
  return fully_shard(fsdp::test::net_of_sharded_blocks(options, at::kFloat, device), options);
}

inline void train_steps(BlockModel& model, int rank, const BlockTraining& way) {
  const auto forward = [&](const at::Tensor& x) { return model(x); };
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  for (int64_t step = 0; step < kNumSteps; ++step) {
    if (way.begin_step) way.begin_step(model);
    for (int pass = 0; pass < way.num_passes; ++pass) {
      std::unique_ptr<fsdp::NoSync> local;
      if (way.syncs_last && pass + 1 < way.num_passes) local.reset(new fsdp::NoSync(model->no_sync()));
      loss_of_batch(forward, rank, 10 * step + pass).backward();
    }
    if (way.clips) cohort::nn::utils::clip_grad_norm_(model->parameters(), 0.05);
    if (way.step) {
      way.step(model, optimizer);
    } else {
      optimizer.step();
      optimizer.zero_grad();
    }
  }
}

/// Ranks wait for each other, and not for devices, which run_ranks_with_devices() does for all of them.
inline void meet(const Group& group) { all_reduce(at::ones({1}), {.group = group}); }

inline Weights whole_on_cpu(BlockModel& model) {
  Weights result;
  for (const auto& parameter : fsdp::test::whole_parameters(model)) result.push_back(parameter.cpu());
  return result;
}

/// The whole parameters of a rank that has trained.
inline Weights train_on_rank(int rank, const Group& group, c10::Device device, const BlockTraining& way) {
  auto model = blocks_on(device, gathered_in(group, way.options));
  if (way.set_up) way.set_up(model);
  train_steps(model, rank, way);
  if (way.begin_step) way.begin_step(model);  // what stays whole over a step would be old
  return whole_on_cpu(model);
}

inline void expect_as_one_process(int world_size, const BlockTraining& way) {
  const auto expected = train_in_one_process(world_size, way);
  run_ranks_with_devices(world_size, [&](int rank, const Group& group, const RankDevices& devices) {
    REQUIRE(are_close(train_on_rank(rank, group, devices.first, way), expected));
  });
}

/// For what one process does not have, such as sums in another dtype.
inline void expect_as_on_cpu(int world_size, const BlockTraining& way) {
  std::vector<Weights> expected(static_cast<size_t>(world_size));
  run_ranks_with_devices(world_size, [&](int rank, const Group& group, const RankDevices&) {
    expected[static_cast<size_t>(rank)] = train_on_rank(rank, group, at::kCPU, way);
  });
  run_ranks_with_devices(world_size, [&](int rank, const Group& group, const RankDevices& devices) {
    REQUIRE(are_equal_in_16_bits(train_on_rank(rank, group, devices.first, way), expected[static_cast<size_t>(rank)]));
  });
}

}  // namespace cohort::sim
