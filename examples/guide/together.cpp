// The program of docs/guide/together.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/checkpoint/state/distributed_state.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/parallel/dims/parallel_dims.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/tensor/parallelize_module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "guide.h"

namespace guide {
namespace {

void train_together(const cohort::DeviceMesh& mesh) {
  at::manual_seed(0);  // all ranks make the same model
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::GELU(), torch::nn::Linear(8, 4));
  if (const auto tp = cohort::parallel::axis_of(mesh, "tp")) {
    cohort::parallelize_module(*net, *tp, {{"0", cohort::ColwiseParallel()}, {"2", cohort::RowwiseParallel()}});
  }
  // Or, if there is no such mesh, net itself.
  auto model = cohort::fully_shard(net, {.mesh = cohort::parallel::data_parallel_mesh(mesh)});
  cohort::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));

  const auto shard = cohort::parallel::data_shard_of(mesh);  // ranks that differ only in tp read the same data
  const cohort::data::DistributedSampler sampler(
      100, {.num_replicas = static_cast<int64_t>(shard.num_replicas), .rank = static_cast<int64_t>(shard.rank)});
  const auto out = model->forward(at::ones({2, 6}));
  const auto loss = out.square().mean();
  loss.backward();
  cohort::nn::utils::clip_grad_norm_(model->parameters(), 1.0);  // the norm over all axes
  optimizer.step();
  const auto state = cohort::checkpoint::get_state_dict(*model, optimizer);  // each rank's shards, with their offsets
  TORCH_CHECK(state.model.contains("0.weight") && sampler.size() == 100 / shard.num_replicas);
}

}  // namespace

void run_together() {
  const cohort::parallel::ParallelDims dims{.dp_shard = 2, .tp = -1};  // 2 ranks: no tp; 8 ranks: tp = 4
  const cohort::DeviceMesh mesh = dims.build_mesh("cpu");
  train_together(mesh);
}

}  // namespace guide
