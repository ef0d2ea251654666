// Plans on unmodified models: each trains as one process does, with as much communication as the layout needs.
#include "cohort/parallel/tensor/parallelize_module.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <iostream>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/tensor/with_layouts.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

constexpr int64_t kPlanWords = 41, kPlanPositions = 7;

models::GPT plan_gpt(const models::GPTOptions& more = {}) {
  at::manual_seed(3);
  models::GPT gpt(models::GPTOptions{.block_size = 16,
                                     .vocab_size = kPlanWords,
                                     .n_layer = 2,
                                     .n_head = 4,
                                     .n_embd = 32,
                                     .dropout = more.dropout,
                                     .tie_weights = more.tie_weights,
                                     .bias = more.bias});
  gpt->to(at::kDouble);
  return gpt;
}

const ParallelPlan kGptPlan{{"transformer.wte", RowwiseParallel()},
                            {"transformer.h.*.attn.c_attn", ColwiseParallel{.num_parts = 3, .num_heads = 4}},
                            {"transformer.h.*.mlp.c_fc", ColwiseParallel()},
                            {"transformer.h.*.*.c_proj", RowwiseParallel()},
                            {"transformer.h.*.ln_[12]", SequenceParallel()},
                            {"lm_head", ColwiseParallel()}};

DeviceMesh plan_mesh() {
  if (!is_initialized()) init_process_group(test::backend_of_tests().c_str());
  return init_device_mesh("cpu", {get_world_size()}, {"tp"});
}

at::Tensor whole_of(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? DTensor(tensor.detach()).full_tensor() : tensor.detach();
}

double plan_difference(const at::Tensor& a, const at::Tensor& b) {
  return (whole_of(a) - whole_of(b)).abs().max().item<double>();
}

at::Tensor plan_loss(models::GPT& gpt, const at::Tensor& tokens, const at::Tensor& targets) {
  return at::cross_entropy_loss(gpt->forward(tokens).view({-1, kPlanWords}), targets.reshape(-1));
}

// Steps of both: the largest difference of losses, and of gradients and parameters after them. `cut`: how the tokens lie.
double train_beside_one_process(const models::GPTOptions& options, const Placement& cut) {
  const auto mesh = plan_mesh();
  auto alone = plan_gpt(options), together = plan_gpt(options);
  const auto names = together->named_parameters().keys();
  parallelize_module(*together, mesh, kGptPlan);
  REQUIRE(together->named_parameters().keys() == names);
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD alone_optimizer(alone->parameters(), sgd), together_optimizer(together->parameters(), sgd);
  double worst = 0;
  for (int64_t step = 0; step < 3; ++step) {
    at::manual_seed(100 + step);
    const auto tokens = at::randint(kPlanWords, {3, kPlanPositions + 1}, at::kLong);
    const auto inputs = tokens.narrow(1, 0, kPlanPositions), targets = tokens.narrow(1, 1, kPlanPositions);
    at::manual_seed(200 + step);
    const auto expected = plan_loss(alone, inputs, targets);
    at::manual_seed(200 + step);
    const auto loss = plan_loss(together, DTensor(distribute_tensor(inputs, mesh, {cut})), targets);
    for (auto* optimizer : {&alone_optimizer, &together_optimizer}) optimizer->zero_grad();
    expected.backward();
    loss.backward();
    worst = std::max(worst, plan_difference(expected, loss));
    for (auto* optimizer : {&alone_optimizer, &together_optimizer}) optimizer->step();
  }
  const auto ps = alone->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) {
    worst = std::max({worst, plan_difference(ps[i], dps[i]), plan_difference(ps[i].grad(), dps[i].grad())});
    REQUIRE(DTensor(dps[i].grad()).placements() == DTensor(dps[i]).placements());
  }
  return worst;
}

COHORT_WORKER(plan_trains_gpt) {
  REQUIRE(train_beside_one_process({.bias = true}, Replicate()) < 1e-10);
  REQUIRE(train_beside_one_process({.dropout = 0.1, .bias = false}, Replicate()) < 1e-10);
  REQUIRE(train_beside_one_process({.tie_weights = true}, Replicate()) < 1e-10);
}

TEST(ParallelizeModule, AGPTTrainsAsInOneProcess) {
  for (const int size : {2, 4}) run_workers("plan_trains_gpt", {.world_size = size}).expect_success();
}

COHORT_WORKER(plan_trains_gpt_by_positions) {
  REQUIRE(train_beside_one_process({.bias = true}, Shard(1)) < 1e-10);
  REQUIRE(train_beside_one_process({.dropout = 0.1, .bias = false}, Shard(1)) < 1e-10);
  REQUIRE(train_beside_one_process({.tie_weights = true}, Shard(1)) < 1e-10);
}

TEST(ParallelizeModule, TokensCutAlongTheSequenceMakeItSequenceParallel) {
  for (const int size : {2, 4}) run_workers("plan_trains_gpt_by_positions", {.world_size = size}).expect_success();
}

TEST(ParallelizeModule, ASequenceIsGatheredInPieces) {
  for (const int size : {2, 4}) {
    run_workers("plan_trains_gpt_by_positions", {.world_size = size, .environment = {{"COHORT_GATHER_PIECES", "2"}}})
        .expect_success();
  }
}

// Two layers of two pairs, and the embedding.
void require_counts(const dtensor::CommCounts& forward, const dtensor::CommCounts& both, bool by_positions,
                    bool are_many) {
  if (!by_positions) {
    REQUIRE(forward.all_reduce == 5 && both.all_reduce == 9 && both.total() == both.all_reduce);
    return;
  }
  constexpr int64_t kPairs = 2 * 2;
  // Of each pair the input is gathered and the sum shared out; one gather is of the tokens' numbers.
  REQUIRE(forward.reduce_scatter == kPairs + 1 && forward.all_gather == kPairs + 1 &&
          forward.total() == 2 * kPairs + 2);
  const auto backward = both - forward;
  // Of each pair the gradient is gathered, once for both products, and the input again, as forward has not kept it; and the
  // rows of the positions. Of the embedding the gradient and the tokens' numbers, or sums of its rows are shared out.
  REQUIRE(backward.all_gather == 2 * kPairs + 1 + (are_many ? 0 : 2));
  REQUIRE(backward.reduce_scatter == kPairs + (are_many ? 1 : 0));
  REQUIRE(backward.all_reduce == 14);  // gradients of norms and of biases that are added to a rank's own positions
  REQUIRE(both.all_to_all == 0);
}

void count_exchanges(int64_t batch, int64_t positions) {
  const auto mesh = plan_mesh();
  const auto tokens = at::arange(batch * positions).remainder(kPlanWords).view({batch, positions});
  for (const Placement& cut : {Placement(Replicate()), Placement(Shard(1))}) {
    auto gpt = plan_gpt();
    parallelize_module(*gpt, mesh, kGptPlan);
    const auto start = dtensor::comm_counts();
    const auto hidden = gpt->transformer->forward(DTensor(distribute_tensor(tokens, mesh, {cut})));
    const auto forward = dtensor::comm_counts() - start;
    hidden.square().sum().backward();
    require_counts(forward, dtensor::comm_counts() - start, cut.is_shard(), batch * positions >= kPlanWords);
    REQUIRE(DTensor(hidden).placements() == Placements{cut});
  }
}

// The weights are smaller than the activations of 40 sequences, and yet stay where they are.
COHORT_WORKER(plan_counts) {
  for (const int64_t batch : {1, 3, 40}) count_exchanges(batch, kPlanPositions);
}

TEST(ParallelizeModule, LayoutsNeedOnlyTheseExchanges) { run_workers("plan_counts").expect_success(); }

TEST(ParallelizeModule, LayoutsNeedNoMoreExchangesInPieces) {
  run_workers("plan_counts", {.environment = {{"COHORT_GATHER_PIECES", "3"}}}).expect_success();
}

// A block of more positions than its width, in one sequence: what an exchange would cost less than a gather.
COHORT_WORKER(plan_counts_of_a_long_sequence) {
  const auto mesh = plan_mesh();
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Linear(8, 8));
  parallelize_module(*net, mesh, {{"0", ColwiseParallel()}, {"1", RowwiseParallel()}});
  const DTensor x = distribute_tensor(at::randn({1, 64, 8}), mesh, {Shard(1)});
  const auto added = [&](const at::Tensor& y) { return (y + x).square().sum(); };
  auto loss = added(net->forward(at::Tensor(x)));
  const auto start = dtensor::comm_counts();
  loss.backward();
  const auto backward = dtensor::comm_counts() - start;
  REQUIRE(backward.all_gather == 2 && backward.all_to_all == 0 && backward.reduce_scatter == 0);
}

TEST(ParallelizeModule, OfALongSequenceGradientsAreGatheredOnce) {
  run_workers("plan_counts_of_a_long_sequence").expect_success();
}

torch::nn::Sequential plan_net() {
  at::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::GELU(), torch::nn::Linear(8, 4));
  net->to(at::kDouble);
  return net;
}

COHORT_WORKER(plan_hooks) {
  const auto mesh = plan_mesh();
  auto alone = plan_net(), together = plan_net();
  const auto names = together->named_parameters().keys();
  // Each rank has rows of its own; the outputs are shared out by rows again, and plain.
  parallelize_module(*together, mesh,
                     {{"0", ColwiseParallel{.input_layouts = Shard(0)}},
                      {"2", RowwiseParallel{.output_layouts = Shard(0), .use_local_output = true}}});
  REQUIRE(together->named_parameters().keys() == names);
  REQUIRE(together[0]->named_parameters().keys() == alone[0]->named_parameters().keys());
  const auto x = at::arange(24, at::kDouble).view({4, 6}) / 24;
  const auto rows = DTensor(distribute_tensor(x, mesh, {Shard(0)})).to_local();
  const auto mine = rows.clone().requires_grad_(), all = x.clone().requires_grad_();
  const auto before = dtensor::comm_counts();
  const auto out = together->forward(mine);
  const auto counts = dtensor::comm_counts() - before;
  REQUIRE(counts.all_gather == 1 && counts.reduce_scatter == 1 && counts.total() == 2);
  REQUIRE(!is_dtensor(out));
  const auto expected = alone->forward(all);
  REQUIRE(at::allclose(DTensor::from_local(out, mesh, {Shard(0)}).full_tensor(), expected));
  out.square().sum().backward();
  expected.square().sum().backward();
  REQUIRE(at::allclose(DTensor::from_local(mine.grad(), mesh, {Shard(0)}).full_tensor(), all.grad()));
  const auto ps = alone->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(plan_difference(ps[i].grad(), dps[i].grad()) < 1e-12);
}

TEST(ParallelizeModule, LayoutsByHooksOfASequential) { run_workers("plan_hooks").expect_success(); }

torch::nn::Sequential plan_positions_net() {
  at::manual_seed(2);
  const auto norm = [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})); };
  torch::nn::Sequential net(torch::nn::Embedding(12, 8), norm(), torch::nn::Linear(8, 16), torch::nn::GELU(),
                            torch::nn::Linear(16, 8), norm());
  net->to(at::kDouble);
  return net;
}

COHORT_WORKER(plan_positions_in_a_sequential) {
  const auto mesh = plan_mesh();
  auto alone = plan_positions_net(), together = plan_positions_net();
  parallelize_module(*together, mesh,
                     {{"0", RowwiseParallel{.input_layouts = Replicate(), .output_layouts = Shard(1)}},
                      {"1", SequenceParallel()},
                      {"2", ColwiseParallel{.input_layouts = Shard(1)}},
                      {"4", RowwiseParallel{.output_layouts = Shard(1)}},
                      {"5", SequenceParallel{.use_local_output = true}}});
  const auto tokens = (at::arange(18) * 5).remainder(12).view({3, 6});
  const auto before = dtensor::comm_counts();
  const auto out = together->forward(tokens);
  const auto forward = dtensor::comm_counts() - before;
  REQUIRE(forward.reduce_scatter == 2 && forward.all_gather == 1 && forward.total() == 3);
  REQUIRE(!is_dtensor(out) && out.size(1) == 3);
  const auto expected = alone->forward(tokens);
  REQUIRE(at::allclose(DTensor::from_local(out, mesh, {Shard(1)}).full_tensor(), expected));
  out.square().sum().backward();
  expected.square().sum().backward();
  const auto both = dtensor::comm_counts() - before;
  // Backward redistributes each input of a hook once, and sums the norms' gradients.
  REQUIRE(both.reduce_scatter == 3 && both.all_reduce == 4);
  const auto ps = alone->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(plan_difference(ps[i].grad(), dps[i].grad()) < 1e-12);
  // The hooks cannot be seen from outside.
  REQUIRE(together->named_buffers().keys() == alone->named_buffers().keys());
  together->eval();
  REQUIRE(!together[1]->is_training());
  REQUIRE_EQUAL(error_of([&] { together->clone(); }),
                "[cohort] WithLayouts cannot be cloned; clone the inner module() and wrap the copy");
}

TEST(ParallelizeModule, PositionsInASequential) { run_workers("plan_positions_in_a_sequential").expect_success(); }

COHORT_WORKER(plan_with_layouts) {
  const auto mesh = plan_mesh();
  auto alone = plan_gpt(), together = plan_gpt();
  parallelize_module(*together, mesh, kGptPlan);
  auto model = parallel::with_layouts(together, mesh,
                                      PrepareModuleInputOutput{.input_layouts = {Replicate()},
                                                               .desired_input_layouts = {Shard(1)},
                                                               .output_layouts = {Shard(-1)},
                                                               .desired_output_layouts = {Replicate()}});
  REQUIRE(model->named_parameters().keys() == alone->named_parameters().keys());
  const auto tokens = at::arange(3 * kPlanPositions).view({3, kPlanPositions});
  const auto logits = model(tokens);
  REQUIRE(!is_dtensor(logits));
  const auto expected = alone->forward(tokens);
  REQUIRE(at::allclose(logits, expected));
  logits.square().sum().backward();
  expected.square().sum().backward();
  const auto ps = alone->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(plan_difference(ps[i].grad(), dps[i].grad()) < 1e-9);
}

TEST(ParallelizeModule, AWrapperTakesAndGivesPlainTensors) { run_workers("plan_with_layouts").expect_success(); }

COHORT_WORKER(plan_whole_model_then_parts) {
  const auto mesh = plan_mesh();
  auto alone = plan_gpt(), together = plan_gpt();
  parallelize_module(*together, mesh, {{"transformer.wte", ColwiseParallel()}}, {.replicate_rest = false});
  for (const auto& block : together->transformer->h->children()) {
    parallelize_module(*block, mesh,
                       {{"*.c_fc", ColwiseParallel()},
                        {"mlp.c_proj", RowwiseParallel()},
                        {"ln_1", OwnStyle([](torch::nn::Module& norm, const DeviceMesh& on) {
                           dtensor::distribute_parameters(norm, on, {{"weight", {Replicate()}}});
                         })}});
  }
  parallelize_module(*together, mesh, {});
  REQUIRE(DTensor(together->transformer->wte->weight).placements() == Placements{Shard(1)});
  const auto tokens = at::arange(3 * kPlanPositions).view({3, kPlanPositions});
  REQUIRE(plan_difference(together->forward(tokens), alone->forward(tokens)) < 1e-10);
}

TEST(ParallelizeModule, AModelInSeveralCalls) { run_workers("plan_whole_model_then_parts").expect_success(); }

COHORT_WORKER(plan_weights_from_rank_0) {
  const auto mesh = plan_mesh();
  auto expected = plan_gpt(), together = plan_gpt();
  if (get_rank() != 0) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : together->parameters()) parameter.zero_();
  }
  parallelize_module(*together, mesh, kGptPlan);
  const auto ps = expected->parameters(), dps = together->parameters();
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(plan_difference(ps[i], dps[i]) == 0);
  // And what is loaded afterwards is shared out.
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < ps.size(); ++i) dps[i].copy_(ps[i] * 2);
  for (size_t i = 0; i < ps.size(); ++i) REQUIRE(plan_difference(ps[i] * 2, dps[i]) == 0);
}

TEST(ParallelizeModule, WeightsBeforeAndAfter) { run_workers("plan_weights_from_rank_0").expect_success(); }

COHORT_WORKER(plan_errors) {
  const auto mesh = plan_mesh();
  const auto refuse = [&](const ParallelPlan& plan) {
    auto gpt = plan_gpt();
    if (get_rank() == 0) std::cout << error_of([&] { parallelize_module(*gpt, mesh, plan); }) << "\n---\n";
    if (get_rank() != 0) error_of([&] { parallelize_module(*gpt, mesh, plan); });
  };
  refuse({{"transformer.h.0.attn.c_attn", ColwiseParallel{.num_parts = 3, .num_heads = 3}}});
  refuse({{"transformer.h.0.attn.c_attn", ColwiseParallel{.num_parts = 5}}});
  refuse({{"transformer.h.0.ln_1", ColwiseParallel()}});
  refuse({{"transformer.h.0.mlp", RowwiseParallel()}});
  refuse({{"transformer.h.0.mlp.c_proj", RowwiseParallel{.output_layouts = Shard(1)}}});
  refuse({{"", PrepareModuleInput{.input_layouts = {Replicate()}, .desired_input_layouts = {Shard(1)}}}});
  refuse({{"lm_head", ColwiseParallel()}, {"lm_head", RowwiseParallel()}});
  refuse({{"transformer.h.0",
           PrepareModuleInput{.input_layouts = {Replicate()}, .desired_input_layouts = {Shard(1), Shard(1)}}}});
  const auto both = init_device_mesh("cpu", {1, 2}, {"dp", "tp"});
  auto gpt = plan_gpt();
  const auto text = error_of([&] { parallelize_module(*gpt, both, {}); });
  if (get_rank() == 0) std::cout << text << "\n";
  // A module that takes another number of tensors.
  auto net = plan_net();
  parallelize_module(*net, mesh, {{"0", PrepareModuleInput{.input_layouts = {Replicate(), Replicate()}}}});
  const auto number = error_of([&] { net->forward(at::ones({1, 6}, at::kDouble)); });
  if (get_rank() == 0) std::cout << "---\n" << number << "\n";
}

TEST(ParallelizeModule, RefusesWithTheFormula) {
  const auto results = run_workers("plan_errors");
  results.expect_success();
  EXPECT_EQ(
      results[0].output,

      "[cohort] 3 attention heads of \"transformer.h.0.attn.c_attn\" cannot be divided evenly among 2 ranks: 3 = "
      "1 * 2 + 1\n"
      "  hint: take a multiple of 2, or a number of ranks that divides it: 1\n"
      "---\n"
      "[cohort] parallelize_module: \"transformer.h.0.attn.c_attn\" has 96 outputs, which cannot be split into 5 equal "
      "parts\n"
      "  hint: set num_parts to the number of maps in one weight, such as 3 for query, key and value\n"
      "---\n"
      "ColwiseParallel currently only support nn.Linear and nn.Embedding! [cohort] \"transformer.h.0.ln_1\" "
      "is a cohort::models::GPTLayerNormImpl\n"
      "  hint: use a module whose only parameters are weight [out, in] and bias [out], or place each parameter with "
      "distribute_parameters\n"
      "---\n"
      "RowwiseParallel currently only support nn.Linear and nn.Embedding! [cohort] \"transformer.h.0.mlp\" "
      "is a cohort::models::GPTMLPImpl\n"
      "  hint: use a module whose only parameters are weight [out, in] and bias [out], or place each parameter with "
      "distribute_parameters\n"
      "---\n"
      "[cohort] parallelize_module: \"transformer.h.0.mlp.c_proj\" is a member that "
      "cohort::models::GPTMLPImpl calls by its type, so it cannot have hooks that redistribute its inputs or outputs\n"
      "  hint: leave the layouts out if they follow from those of the inputs, give them to a child of a "
      "torch::nn::Sequential, or wrap the module: with_layouts(module, mesh, style)\n"
      "---\n"
      "[cohort] parallelize_module: the module cohort::models::GPTImpl is what parallelize_module was "
      "given, so it cannot have hooks that redistribute its inputs or outputs\n"
      "  hint: leave the layouts out if they follow from those of the inputs, give them to a child of a "
      "torch::nn::Sequential, or wrap the module: with_layouts(module, mesh, style)\n"
      "---\n"
      "[cohort] parallelize_module: weight of \"lm_head\" is already placed as (Shard(dim=0),) on "
      "DeviceMesh((tp=2), 'cpu', stride=(1,)), and should become (Shard(dim=1),) on DeviceMesh((tp=2), "
      "'cpu', stride=(1,))\n"
      "  hint: give modules that share a weight styles that agree; if you call it on a full model before its parts, "
      "set replicate_rest = false\n"
      "---\n"
      "input_layouts and desired_input_layouts should have same length! They have 1 and 2.\n"
      "---\n"
      "[cohort] parallelize_module: the mesh must have one axis, but it is DeviceMesh((dp=1, tp=2), 'cpu', "
      "stride=((), 1))\n"
      "  hint: pass the axis whose ranks compute together, such as mesh[\"tp\"]\n"
      "---\n"
      "module inputs and input_layouts should have same length! They have 1 tensors and 2 layouts.\n");
}

COHORT_WORKER(plan_warns) {
  const auto mesh = plan_mesh();
  auto gpt = plan_gpt();
  parallelize_module(*gpt, mesh,
                     {{"transformer.h.*.attm.c_attn", ColwiseParallel()}, {"lm_head.x", ColwiseParallel()}});
}

TEST(ParallelizeModule, WarnsOfPatternsThatMatchNothing) {
  const auto results = run_workers("plan_warns");
  results.expect_success();
  EXPECT_NE(results[0].errors.find(
                "parallelize_module: the plan's \"transformer.h.*.attm.c_attn\" matches no module, and is skipped: "
                "\"transformer.h.0\" has no child \"attm\" (did you mean \"attn\"?)\n  hint: use one of its children: "
                "\"ln_1\", "
                "\"attn\", \"ln_2\", \"mlp\""),
            std::string::npos)
      << results[0].errors;
  EXPECT_NE(results[0].errors.find("\"lm_head\" has no child \"x\"\n  hint: it has no children"), std::string::npos);
  EXPECT_EQ(results[1].errors.find("matches no module"), std::string::npos);
}

}  // namespace
}  // namespace cohort
