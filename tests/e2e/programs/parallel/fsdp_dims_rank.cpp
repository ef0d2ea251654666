// fsdp_dims_rank BACKEND RESULT: fully_shard with dp_mesh_dims of a net whose parameters are DTensors on the whole mesh of 2 x 2
// ranks: losses, gradient norms, and what this rank has of gradients and parameters. fsdp_dims_python_rank.py computes the same
// by PyTorch.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/e2e/programs/parallel/kept_tensors.h"
#include "tests/e2e/programs/parallel/plan_net.h"

namespace {

using cohort::Placements;
using cohort::Replicate;
using cohort::Shard;
using cohort::test::keep;

constexpr int64_t kIn = 6;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kIn})))),
        up(register_module("up", torch::nn::Linear(kIn, hidden))),
        down(register_module("down", torch::nn::Linear(hidden, kIn))) {}
  at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Net);

struct Case {
  cohort::fsdp::DataParallelMeshDims dims;
  int64_t hidden = 8;
  int passes = 1;
  bool one_memory = true;
};

void run(const std::string& name, const Case& of, const cohort::DeviceMesh& mesh) {
  Net net(of.hidden);
  {
    const at::NoGradGuard no_grad;
    uint64_t seed = 1;
    for (auto& parameter : net->parameters()) parameter.copy_(cohort::test::drawn(parameter.sizes(), seed++) * 0.5);
  }
  cohort::dtensor::distribute_parameters(*net->up, mesh,
                                         {{"weight", {Replicate(), Shard(0)}}, {"bias", {Replicate(), Shard(0)}}});
  cohort::dtensor::distribute_parameters(*net->down, mesh, {{"weight", {Replicate(), Shard(1)}}});
  cohort::distribute_module(*net, mesh);
  auto model = cohort::fully_shard(net, {.mesh = mesh, .dp_mesh_dims = of.dims, .one_memory = of.one_memory});
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01).eps(1e-4));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < of.passes; ++pass) {
      model->set_requires_gradient_sync(pass == of.passes - 1);
      const auto whole = cohort::test::drawn({5, kIn}, 100 + 10 * step + pass);
      const cohort::DTensor x = cohort::distribute_tensor(whole, mesh, {Shard(0), Replicate()});
      const auto loss = (model->forward(x) - x).square().mean();
      loss.backward();
      keep(name + ".loss" + std::to_string(step) + std::to_string(pass), cohort::DTensor(loss.detach()).full_tensor());
    }
    keep(name + ".norm" + std::to_string(step), cohort::nn::utils::clip_grad_norm_(model->parameters(), 0.1));
    optimizer.step();
  }
  for (const auto& parameter : cohort::fsdp::sharded_parameters(*model)) {
    keep(name + "." + parameter.name, parameter.shard);
    keep(name + "." + parameter.name + ".grad", parameter.shard.grad());
    const cohort::DTensor whole(parameter.shard.detach(), *parameter.spec);
    keep(name + "." + parameter.name + ".whole", whole.full_tensor());
  }
}

void run_all() {
  const auto mesh = cohort::init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  for (const bool one_memory : {true, false}) {
    const std::string memory = one_memory ? "one" : "gathered";
    run(memory + ".shard", {.dims = {.shard = {"dp"}}, .one_memory = one_memory}, mesh);
    run(memory + ".uneven", {.dims = {.shard = {"dp"}}, .hidden = 6, .one_memory = one_memory}, mesh);
    run(memory + ".passes", {.dims = {.shard = {"dp"}}, .passes = 2, .one_memory = one_memory}, mesh);
    run(memory + ".replicate", {.dims = {.replicate = {"dp"}}, .one_memory = one_memory}, mesh);
  }
}

}  // namespace

int main(int, char** argv) { return cohort::test::keep_of_rank(argv, run_all); }
