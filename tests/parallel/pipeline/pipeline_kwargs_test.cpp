// What steps give every stage and the loss beside inputs and targets: against one process that has all stages.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/parallel/pipeline/small_stages.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::draw_parameters;
using test::drawn;
using test::error_of;
using test::kNumParts;
using test::require_near;
using test::run_rank_threads;

struct MaskedImpl : torch::nn::Module {
  explicit MaskedImpl(int index) : linear(register_module("linear", torch::nn::Linear(6, 6))) {
    draw_parameters(*this, static_cast<uint64_t>(10 * index + 1));
  }
  // The batch lies in the mask's dimension 1.
  at::Tensor forward(at::Tensor x, at::Tensor mask, at::Tensor places) {
    const at::Tensor y = linear(x + places).tanh();
    return x + (mask.defined() ? y * mask.t() : y);
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Masked);

// `classes`: of all rows.
at::Tensor weighted(const at::Tensor& y, const at::Tensor& target, const at::Tensor& rows, const at::Tensor& classes) {
  return ((y - target).square() * rows.unsqueeze(1) * classes).mean();
}

std::vector<int> kwargs_indices(const std::string& schedule, int rank) {
  if (schedule == "1F1B" || schedule == "GPipe") return {rank};
  return schedule == "ZBVZeroBubble" || schedule == "DualPipeV" ? std::vector<int>{rank, 3 - rank}
                                                                : std::vector<int>{rank, rank + 2};
}

// A batch, and what one process makes of it.
struct MaskedBatch {
  MaskedBatch(int64_t num_rows, uint64_t seed)
      : x(drawn({num_rows, 6}, seed)),
        target(drawn({num_rows, 6}, seed + 1)),
        mask(drawn({1, num_rows}, seed + 2).gt(0)),
        places(drawn({1, 6}, seed + 3)),
        rows(drawn({num_rows}, seed + 4).square()),
        classes(drawn({6}, seed + 5).square()) {}

  void train(std::vector<Masked>& blocks) {
    const auto xs = x.tensor_split(kNumParts), ts = target.tensor_split(kNumParts);
    const auto masks = mask.tensor_split(kNumParts, 1), weights = rows.tensor_split(kNumParts);
    for (size_t i = 0; i < xs.size(); ++i) {
      at::Tensor y = xs[i];
      for (auto& block : blocks) y = block(y, masks[i], places);
      const at::Tensor loss = weighted(y, ts[i], weights[i], classes);
      (loss / kNumParts).backward();
      outputs.push_back(y.detach());
      losses.push_back(loss.detach());
    }
  }
  StepOptions options(std::vector<at::Tensor>* own_losses) const {
    return {.target = target, .losses = own_losses, .kwargs = {mask, places}, .loss_kwargs = {rows, classes}};
  }

  at::Tensor x, target, mask, places, rows, classes;
  TensorList outputs, losses;
};

PipelineOptions masked_options() {
  return {.loss_fn = loss_of(weighted),
          .kwargs_chunk_spec = {{.split_dim = 1}, TensorChunkSpec::replicate()},
          .loss_kwargs_chunk_spec = {{}, TensorChunkSpec::replicate()}};
}

std::vector<Masked> masked_blocks(int num_stages) {
  std::vector<Masked> blocks;
  for (int i = 0; i < num_stages; ++i) blocks.emplace_back(i);
  return blocks;
}

void require_same_gradients(torch::nn::Module& own, torch::nn::Module& expected) {
  const auto parameters = own.parameters(), wanted = expected.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) require_near(parameters[i].grad(), wanted[i].grad());
}

class PipelineKwargs : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, PipelineKwargs, testing::ValuesIn(pipeline::pipeline_schedule_names()));

TEST_P(PipelineKwargs, ReachEveryStageAndTheLoss) {
  run_rank_threads(2, [name = GetParam()](int rank, const Group& group) {
    const auto indices = kwargs_indices(name, rank);
    const int num_stages = 2 * static_cast<int>(indices.size());
    auto expected = masked_blocks(num_stages), blocks = masked_blocks(num_stages);
    std::vector<PipelineStage> stages;
    for (const int index : indices) {
      stages.emplace_back(blocks[static_cast<size_t>(index)], index, num_stages, PipelineStageOptions{.group = group});
    }
    PipelineSchedule schedule(name, stages, kNumParts, masked_options());
    for (const uint64_t seed : {100, 200}) {  // shapes are announced in the first step
      MaskedBatch batch(10, seed);
      batch.train(expected);
      std::vector<at::Tensor> losses;
      const TensorList inputs = rank == 0 ? TensorList{batch.x} : TensorList();
      const auto outputs = schedule.step(inputs, batch.options(&losses));
      for (const int index : indices) {
        require_same_gradients(*blocks[static_cast<size_t>(index)], *expected[static_cast<size_t>(index)]);
      }
      if (!outputs.empty()) {
        require_near(outputs[0], at::cat(batch.outputs));
        require_near(at::stack(losses), at::stack(batch.losses));
      }
      losses.clear();
      const auto evaluated = schedule.eval(inputs, batch.options(&losses));
      if (evaluated.empty()) continue;
      require_near(evaluated[0], at::cat(batch.outputs));
      require_near(at::stack(losses), at::stack(batch.losses));
    }
  });
}

TEST(PipelineKwargs, OfReplicasWithShapesGivenBeforehand) {
  run_rank_threads(4, [](int rank, const Group& all) {
    const int replica = rank / 2, index = rank % 2;
    const Group stages = test::split_rank_threads(all, {{0, 1}, {2, 3}}),
                replicas = test::split_rank_threads(all, {{0, 2}, {1, 3}});
    auto expected = masked_blocks(2);
    std::vector<MaskedBatch> batches = {{8, 100}, {8, 200}};
    for (auto& batch : batches) batch.train(expected);
    for (auto& block : expected) {
      for (const at::Tensor& parameter : block->parameters()) parameter.grad().div_(2);
    }
    const TensorList example = {at::empty({2, 6}, at::kMeta)};
    Masked block(index);
    DistributedDataParallel ddp(block, {.process_group = replicas});
    PipelineSchedule schedule(
        "1F1B", {PipelineStage(ddp, index, 2, {.group = stages, .input_args = example, .output_args = example})},
        kNumParts, masked_options());
    const MaskedBatch& own = batches[static_cast<size_t>(replica)];
    schedule.step(index == 0 ? TensorList{own.x} : TensorList(), own.options(nullptr));
    require_same_gradients(*block, *expected[static_cast<size_t>(index)]);
  });
}

// One process with one stage, which says what it is given.
struct OneStage {
  Masked block{0};
  std::vector<TensorChunkSpec> kwargs_chunk_spec = {};
  PipelineLoss loss = loss_of([](auto& y, auto& target) { return at::mse_loss(y, target); });
  void step(const StepOptions& options) const {
    PipelineSchedule schedule("1F1B", {PipelineStage(block, 0, 1)}, kNumParts,
                              {.loss_fn = loss, .kwargs_chunk_spec = kwargs_chunk_spec});
    schedule.step({at::ones({8, 6})}, options);
  }
};

TEST(PipelineKwargs, AreNoPartOfTheGraph) {
  const at::Tensor mask = at::ones({1, 6}).requires_grad_(), places = at::ones({8, 6}).requires_grad_();
  const at::Tensor weights = at::ones({8, 1}).requires_grad_();
  OneStage stage;
  stage.kwargs_chunk_spec = {TensorChunkSpec::replicate(), {}};
  stage.loss = loss_of([](auto& y, auto& target, auto& each) { return (y * each - target).square().mean(); });
  const at::Tensor target = at::zeros({8, 6});
  stage.step({.target = target, .kwargs = {mask.view({6, 1}), places}, .loss_kwargs = {weights}});
  EXPECT_FALSE(mask.grad().defined() || places.grad().defined() || weights.grad().defined());
  EXPECT_TRUE(stage.block->linear->weight.grad().defined());
}

TEST(PipelineKwargs, MayBeUndefined) {
  OneStage stage;
  const at::Tensor places = at::ones({8, 6}), target = at::zeros({8, 6});
  stage.step({.target = target, .kwargs = {at::Tensor(), places}});
  const at::Tensor gradient = stage.block->linear->weight.grad().clone();
  stage.block->zero_grad();
  at::mse_loss(stage.block(at::ones({8, 6}), at::Tensor(), places), target).backward();
  require_near(gradient, stage.block->linear->weight.grad());
}

TEST(PipelineKwargs, ThatDoNotFitMessage) {
  OneStage stage;
  const at::Tensor rows = at::ones({8, 6}), target = at::zeros({8, 6});
  const auto error_with = [&](const TensorList& kwargs, const TensorList& loss_kwargs = {}) {
    return error_of([&] { stage.step({.target = target, .kwargs = kwargs, .loss_kwargs = loss_kwargs}); });
  };
  const std::string where = " ([cohort] pipeline: rank 0 ran 0F0, step 1 of 11 in its list)";
  EXPECT_EQ(error_with({rows}),
            "[cohort] pipeline: the stage's forward takes 3 tensors, but it was given 2\n"
            "  hint: pass as many tensors: the outputs of the stage before, or step()'s inputs, and then "
            "StepOptions::kwargs" +
                where);
  EXPECT_EQ(error_with({rows, at::ones({3, 6})}),
            "[cohort] pipeline: StepOptions::kwargs[1] is Float [3, 6], which cannot be split along dimension 0 into 4 "
            "microbatches\n  hint: to give each of them all of it, set TensorChunkSpec::replicate() in "
            "PipelineOptions::kwargs_chunk_spec");
  EXPECT_EQ(
      error_with({at::Tensor(), rows}, {at::ones({})}),
      "[cohort] pipeline: StepOptions::loss_kwargs[0] is Float [], which cannot be split along dimension 0 into 4 "
      "microbatches\n  hint: to give each of them all of it, set TensorChunkSpec::replicate() in "
      "PipelineOptions::loss_kwargs_chunk_spec");
  EXPECT_EQ(
      error_with({at::Tensor(), rows}, {rows}),
      "[cohort] pipeline: loss_fn takes 0 tensors besides outputs and target, but StepOptions::loss_kwargs has 1" +
          where);
  stage.loss = loss_of([](auto& y, auto& t, const at::Tensor&) { return at::mse_loss(y, t); });
  EXPECT_EQ(error_with({at::Tensor(), rows}),
            "[cohort] pipeline: loss_fn takes 1 tensor besides outputs and target, but StepOptions::loss_kwargs has 0" +
                where);
  stage.kwargs_chunk_spec = {{.split_dim = 2}};
  EXPECT_EQ(error_with({rows, rows}),
            "[cohort] pipeline: StepOptions::kwargs has 2 tensors, but PipelineOptions::kwargs_chunk_spec has 1");
  EXPECT_EQ(error_with({rows}),
            "[cohort] pipeline: StepOptions::kwargs[0] is Float [8, 6], which cannot be split along dimension 2 into 4 "
            "microbatches\n  hint: to give each of them all of it, set TensorChunkSpec::replicate() in "
            "PipelineOptions::kwargs_chunk_spec");
}

TEST(PipelineKwargs, ThatDoNotFitOneRankAreEveryonesError) {
  run_rank_threads(2, [](int rank, const Group& group) {
    PipelineSchedule schedule("GPipe", {PipelineStage(Masked(rank), rank, 2, {.group = group})}, kNumParts,
                              masked_options());
    const MaskedBatch batch(8, 100);
    StepOptions options = batch.options(nullptr);
    if (rank == 1) options.kwargs.pop_back();
    REQUIRE_EQUAL(error_of([&] { schedule.step(rank == 0 ? TensorList{batch.x} : TensorList(), options); }),
                  std::string(rank == 0 ? "[cohort] pipeline: the step failed\n  rank 1: " : "[cohort] ") +
                      "pipeline: StepOptions::kwargs has 1 tensor, but PipelineOptions::kwargs_chunk_spec has "
                      "2");
  });
}

// Whatever a loss may be, as loss_fn has it.
TEST(PipelineLoss, IsMadeOfAnyCallable) {
  using OfTarget = std::function<PipelineLoss::OfTarget>;
  EXPECT_FALSE(PipelineLoss());
  EXPECT_FALSE(PipelineLoss(OfTarget()));
  EXPECT_FALSE(PipelineLoss(std::function<PipelineLoss::OfTargetAndMore>()));
  const at::Tensor y = at::full({2}, 3.0), target = at::ones({2}), factor = at::full({}, 2.0);
  const OfTarget plain = loss_of([](auto& output, auto& wanted) { return (output - wanted).sum(); });
  EXPECT_EQ(PipelineLoss(plain)({y}, target).item<double>(), 4);
  const PipelineLoss more = [](const TensorList& outputs, const at::Tensor&, const TensorList& loss_kwargs) {
    return outputs[0].sum() * static_cast<double>(loss_kwargs.size());
  };
  EXPECT_EQ(more({y}, target, {factor, factor}).item<double>(), 12);
  const PipelineLoss two = loss_of([](auto& output, auto&, auto& a, auto& b) { return output.sum() * a - b; });
  EXPECT_EQ(two({y}, target, {factor, factor}).item<double>(), 10);
}

}  // namespace
}  // namespace cohort
