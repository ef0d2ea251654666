// fsdp_tensor_rank BACKEND RESULT: a small transformer by parallelize_module and fully_shard on a mesh of 2 x 2 ranks: losses,
// gradient norms, and what this rank has of gradients and parameters. fsdp_tensor_python_rank.py computes the same by PyTorch.
#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/e2e/programs/parallel/kept_tensors.h"
#include "tests/e2e/programs/parallel/plan_net.h"

namespace {

using namespace cohort::test;

struct Case {
  cohort::Placement cut = cohort::Replicate();
  int64_t words = kWords;
  int passes = 1;
  bool one_memory = true;
};

void run(const std::string& name, const Case& of, const cohort::DeviceMesh& mesh) {
  PlanNet net(of.words);
  draw_parameters(net);
  cohort::parallelize_module(*net, mesh["tp"], plan_of_net());
  auto model = cohort::fully_shard(net, {.mesh = mesh["dp"], .one_memory = of.one_memory});
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01).eps(1e-4));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < of.passes; ++pass) {
      model->set_requires_gradient_sync(pass == of.passes - 1);
      const auto tokens = (tokens_of(3, of.words) + 5 * step + 3 * pass + mesh.local_rank("dp")).remainder(of.words);
      const cohort::DTensor inputs = cohort::distribute_tensor(tokens.narrow(1, 0, kPositions), mesh["tp"], {of.cut});
      const auto logits = model->forward(inputs);
      const auto loss = at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, kPositions).reshape(-1));
      loss.backward();
      keep(name + ".loss" + std::to_string(step) + std::to_string(pass), cohort::DTensor(loss.detach()).full_tensor());
    }
    keep(name + ".norm" + std::to_string(step), cohort::nn::utils::clip_grad_norm_(model->parameters(), 0.5));
    optimizer.step();
  }
  for (const auto& parameter : cohort::fsdp::sharded_parameters(*model)) {
    keep(name + "." + parameter.name, parameter.shard);
    keep(name + "." + parameter.name + ".grad", parameter.shard.grad());
  }
}

void run_all() {
  const auto mesh = cohort::init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  for (const bool one_memory : {true, false}) {
    const std::string memory = one_memory ? "one" : "gathered";
    run(memory + ".tensor", {.one_memory = one_memory}, mesh);
    run(memory + ".uneven", {.words = 22, .one_memory = one_memory}, mesh);
    run(memory + ".sequence", {.cut = cohort::Shard(1), .one_memory = one_memory}, mesh);
    run(memory + ".passes", {.cut = cohort::Shard(1), .passes = 2, .one_memory = one_memory}, mesh);
  }
}

}  // namespace

int main(int, char** argv) { return cohort::test::keep_of_rank(argv, run_all); }
