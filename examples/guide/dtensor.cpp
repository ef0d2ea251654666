// The programs of docs/guide/dtensor.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/dtensor/api/distribute_module.h>
#include <cohort/dtensor/api/dtensor.h>
#include <cohort/dtensor/api/factories.h>
#include <cohort/dtensor/api/sharding_rule.h>
#include <cohort/dtensor/wrapper/comm_counts.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "guide.h"

namespace guide {
namespace {

using cohort::DTensor;
using cohort::Replicate;
using cohort::Shard;

void calculate(const cohort::DeviceMesh& mesh) {
  const auto x = at::ones({4, 6}), full = at::ones({8, 6});
  const DTensor weight = cohort::distribute_tensor(full, mesh, {Shard(0)});  // each rank gets its rows
  const at::Tensor y = at::linear(x, weight).relu();                         // one process's code; all ranks have x
  TORCH_CHECK(DTensor(y).placements() == cohort::Placements{Shard(1)});      // without communication
  TORCH_CHECK(at::equal(DTensor(y).full_tensor(), at::linear(x, full)));
}

void move(const cohort::DeviceMesh& mesh) {
  const auto part = at::full({2, 3}, cohort::get_rank());
  const auto rows = DTensor::from_local(part, mesh, {Shard(0)});
  const auto columns = rows.redistribute({Shard(1)});  // an all-to-all
  const at::Tensor own = columns.to_local();           // an ordinary tensor, which shares the shard's memory
  TORCH_CHECK(rows.size(0) == 4 && own.size(0) == 4);
}

void train(const cohort::DeviceMesh& mesh) {
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::GELU(), torch::nn::Linear(8, 4));
  cohort::distribute_module(*net, mesh, [](const std::string& name, torch::nn::Module& module, const auto& on) {
    if (name == "0") cohort::dtensor::distribute_parameters(module, on, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
    if (name == "2") cohort::dtensor::distribute_parameters(module, on, {{"weight", {Shard(1)}}});
  });  // all others are replicated
  torch::optim::AdamW optimizer(net->parameters());
  const auto before = cohort::dtensor::comm_counts();
  const at::Tensor loss = net->forward(at::ones({3, 6})).square().mean();
  loss.backward();
  optimizer.step();
  // The output is reduced once, for square(); its gradient uses the same result.
  TORCH_CHECK((cohort::dtensor::comm_counts() - before).all_reduce == 1);
}

void make(const cohort::DeviceMesh& mesh) {
  const DTensor mask = cohort::dtensor::zeros({5, 3}, mesh, {Shard(1)}, at::kFloat);
  TORCH_CHECK(mask.to_local().size(1) == 2 - cohort::get_rank());
}

void teach(const cohort::DeviceMesh& mesh) {
  // Columns are independent, so they can be sharded.
  cohort::register_sharding_rule("aten::renorm", [](const cohort::ShardingQuestion& question) {
    std::vector<cohort::ShardingOption> options;
    if (question.arguments[2].toInt() == 1) options.push_back({.results = {Shard(1)}, .operands = {Shard(1)}});
    return options;
  });
  const DTensor x = cohort::distribute_tensor(at::ones({3, 4}), mesh, {Shard(1)});
  TORCH_CHECK(DTensor(x.renorm(2, 1, 0.5)).placements() == x.placements());
}

}  // namespace

void run_dtensor() {
  const cohort::DeviceMesh mesh = cohort::init_device_mesh("cpu", {2}, {"tp"});
  calculate(mesh);
  move(mesh);
  train(mesh);
  make(mesh);
  teach(mesh);
  cohort::destroy_process_group();
}

}  // namespace guide
