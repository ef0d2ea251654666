// Unmodified models whose parameters are DTensors: step by step what one process calculates, with as much communication as
// needed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/precision/autocast.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

constexpr int64_t kVocabulary = 41, kTime = 7;

models::GPT make_gpt(double dropout) {
  at::manual_seed(3);
  models::GPT gpt(models::GPTOptions{
      .block_size = 16, .vocab_size = kVocabulary, .n_layer = 2, .n_head = 4, .n_embd = 32, .dropout = dropout});
  gpt->to(at::kDouble);
  return gpt;
}

// As Megatron: columns of the first map of each pair, rows of the second. q, k and v stand one below the other in one weight.
void shard_block(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh) {
  const auto ends_with = [&](const char* end) { return name.ends_with(end); };
  if (ends_with("c_attn")) {
    dtensor::distribute_parameters(module, mesh, {{"weight", {StridedShard(0, 3)}}, {"bias", {StridedShard(0, 3)}}});
  } else if (ends_with("c_fc")) {
    dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
  } else if (ends_with("c_proj")) {
    dtensor::distribute_parameters(module, mesh, {{"weight", {Shard(1)}}});
  }
}

at::Tensor loss_of(models::GPT& gpt, const at::Tensor& tokens) {
  const auto logits = gpt->forward(tokens.narrow(1, 0, kTime));
  return at::cross_entropy_loss(logits.view({-1, kVocabulary}), tokens.narrow(1, 1, kTime).reshape(-1));
}

at::Tensor whole(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? DTensor(tensor.detach()).full_tensor() : tensor.detach();
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (whole(a) - whole(b)).abs().max().item<double>(); }

// Both models on the same batches: the largest difference of losses, gradients, norms and parameters.
template <class Optimizer, class Options>
double train_both(const Options& options, double dropout, const DeviceMesh& mesh) {
  auto alone = make_gpt(dropout);
  auto together = make_gpt(dropout);
  distribute_module(*together, mesh, shard_block);
  Optimizer alone_optimizer(alone->parameters(), options), together_optimizer(together->parameters(), options);
  double worst = 0;
  for (int64_t step = 0; step < 4; ++step) {
    at::manual_seed(100 + step);
    const auto tokens = at::randint(kVocabulary, {3, kTime + 1}, at::kLong);
    const auto run = [&](models::GPT& gpt, Optimizer& optimizer) {
      at::manual_seed(200 + step);
      optimizer.zero_grad();
      const auto loss = loss_of(gpt, tokens);
      loss.backward();
      const auto norm = nn::utils::clip_grad_norm_(gpt->parameters(), 1.0);
      optimizer.step();
      return std::pair(loss, norm);
    };
    const auto [loss, norm] = run(alone, alone_optimizer);
    const auto [dloss, dnorm] = run(together, together_optimizer);
    worst = std::max({worst, distance(loss, dloss), distance(norm, dnorm)});
    const auto ps = alone->parameters(), dps = together->parameters();
    for (size_t i = 0; i < ps.size(); ++i) {
      worst = std::max({worst, distance(ps[i], dps[i]), distance(ps[i].grad(), dps[i].grad())});
      REQUIRE(DTensor(dps[i]).placements() == DTensor(dps[i].grad()).placements());
    }
  }
  return worst;
}

DeviceMesh mesh_of_all() {
  init_process_group(test::backend_of_tests().c_str());
  return init_device_mesh("cpu", {get_world_size()}, {"tp"});
}

COHORT_WORKER(dtensor_gpt_optimizers) {
  const auto mesh = mesh_of_all();
  // Keys' biases have a gradient of 0 but for rounding, of which Adam would make whole steps.
  const auto adam = torch::optim::AdamOptions(1e-2).weight_decay(0.1).eps(1e-4);
  const auto adamw = torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(1e-4);
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
  REQUIRE(train_both<torch::optim::SGD>(sgd, 0, mesh) < 1e-9);
  REQUIRE(train_both<torch::optim::Adam>(adam, 0, mesh) < 1e-7);
  REQUIRE(train_both<torch::optim::AdamW>(adamw, 0, mesh) < 1e-7);
  REQUIRE(train_both<optim::SGD>(sgd, 0, mesh) < 1e-9);
  REQUIRE(train_both<optim::AdamW>(adamw, 0, mesh) < 1e-7);
}

TEST(DTensorTraining, GPTWithEveryOptimizer) {
  for (const int size : {2, 4}) test::run_workers("dtensor_gpt_optimizers", {.world_size = size}).expect_success();
}

COHORT_WORKER(dtensor_gpt_dropout) {
  REQUIRE(train_both<torch::optim::SGD>(torch::optim::SGDOptions(0.1), 0.2, mesh_of_all()) < 1e-9);
}

TEST(DTensorTraining, DropoutDoesNotDependOnWhoHasWhat) { test::run_workers("dtensor_gpt_dropout").expect_success(); }

COHORT_WORKER(dtensor_gpt_counts) {
  const auto mesh = mesh_of_all();
  auto gpt = make_gpt(0);
  distribute_module(*gpt, mesh, shard_block);
  const auto tokens = at::arange(3 * (kTime + 1)).view({3, kTime + 1});
  const auto start = dtensor::comm_counts();
  const auto loss = loss_of(gpt, tokens);
  const auto forward = dtensor::comm_counts() - start;
  loss.backward();
  const auto both = dtensor::comm_counts() - start;
  // Per block: attention and MLP, once forward and once backward.
  REQUIRE(forward.all_reduce == 2 * 2 && both.all_reduce == 2 * 4);
  REQUIRE(both.total() == both.all_reduce);
}

TEST(DTensorTraining, ABlockNeedsFourReductionsAndNothingElse) {
  test::run_workers("dtensor_gpt_counts").expect_success();
}

COHORT_WORKER(dtensor_autocast) {
  const auto mesh = mesh_of_all();
  at::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::GELU(), torch::nn::Linear(8, 4));
  dtensor::distribute_parameters(*net[0], mesh, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
  dtensor::distribute_parameters(*net[2], mesh, {{"weight", {Shard(1)}}});
  distribute_module(*net, mesh);
  at::Tensor out;
  {
    const Autocast autocast(at::kCPU);
    out = net->forward(at::ones({3, 6}));
  }
  REQUIRE(out.scalar_type() == at::kBFloat16 && is_dtensor(out));
  out.sum().backward();
  for (const auto& parameter : net->parameters()) {
    REQUIRE(parameter.grad().scalar_type() == at::kFloat);
    REQUIRE(DTensor(parameter.grad()).placements() == DTensor(parameter).placements());
  }
}

TEST(DTensorTraining, AutocastCastsTheParts) { test::run_workers("dtensor_autocast").expect_success(); }

}  // namespace
}  // namespace cohort
