// tensor_plan_rank BACKEND RESULT: a small transformer by parallelize_module on this rank: losses and gradients, with tokens that
// all ranks have and with tokens that are shared out by positions. tensor_plan_python_rank.py computes the same by PyTorch.
#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "tests/e2e/programs/parallel/kept_tensors.h"
#include "tests/e2e/programs/parallel/plan_net.h"

namespace {

using namespace cohort::test;

void run(const std::string& name, const cohort::Placement& cut, const cohort::DeviceMesh& mesh) {
  PlanNet net;
  draw_parameters(net);
  cohort::parallelize_module(*net, mesh, plan_of_net());
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto tokens = tokens_of(3, kWords);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const cohort::DTensor inputs = cohort::distribute_tensor(tokens.narrow(1, 0, kPositions), mesh, {cut});
    const auto logits = net->forward(inputs);
    const auto loss = at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, kPositions).reshape(-1));
    loss.backward();
    keep(name + ".loss" + std::to_string(step), cohort::DTensor(loss.detach()).full_tensor());
    optimizer.step();
  }
  for (const auto& entry : net->named_parameters()) {
    const cohort::DTensor parameter(entry.value()), gradient(entry.value().grad());
    keep(name + "." + entry.key(), parameter.to_local());
    keep(name + "." + entry.key() + ".grad", gradient.to_local());
  }
}

void run_all() {
  const auto mesh = cohort::init_device_mesh("cpu", {cohort::get_world_size()}, {"tp"});
  run("tensor", cohort::Replicate(), mesh);
  run("sequence", cohort::Shard(1), mesh);
}

}  // namespace

int main(int, char** argv) { return cohort::test::keep_of_rank(argv, run_all); }
