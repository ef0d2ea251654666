// Stages that are wrapped, or hold checkpoints: against one process that has all stages.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <optional>

#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/precision/autocast.h"
#include "tests/parallel/pipeline/small_stages.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::draw_parameters;
using test::drawn;
using test::kNumParts;
using test::require_near;
using test::run_rank_threads;
using test::run_steps;
using test::squares;

struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(uint64_t seed, bool has_checkpoint = false) : has_checkpoint(has_checkpoint) {
    for (int i = 0; i < 2; ++i) layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(8, 8)));
    draw_parameters(*this, seed);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& each : layers) {
      const auto block = [&each](const at::Tensor& y) { return y + each(y).tanh(); };
      x = has_checkpoint ? activation::checkpoint(block, x) : block(x);
    }
    return x;
  }
  bool has_checkpoint;
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Deep);

// The gradients of four blocks of which each replica has its own batch, averaged over these.
struct DeepBatches {
  explicit DeepBatches(int num_replicas, int num_stages, bool has_autocast = false) {
    for (int i = 0; i < num_stages; ++i) blocks.emplace_back(static_cast<uint64_t>(10 * i + 1));
    for (int replica = 0; replica < num_replicas; ++replica) {
      const auto seed = static_cast<uint64_t>(replica);
      inputs.push_back(drawn({10, 8}, 100 + seed));
      targets.push_back(drawn({10, 8}, 200 + seed));
      const auto xs = inputs.back().tensor_split(kNumParts), ts = targets.back().tensor_split(kNumParts);
      for (size_t i = 0; i < xs.size(); ++i) {
        at::Tensor x = xs[i];
        std::optional<Autocast> region;
        if (has_autocast) region.emplace(at::kCPU);
        for (auto& block : blocks) x = block(x);
        const at::Tensor loss = squares(x, ts[i]) / kNumParts / num_replicas;
        region.reset();
        loss.backward();
      }
    }
  }
  std::vector<Deep> blocks;
  TensorList inputs, targets;
};

// Stages of this rank in a schedule for two ranks.
std::vector<int> deep_indices(const std::string& schedule, int rank) {
  if (schedule == "1F1B" || schedule == "GPipe") return {rank};
  return schedule == "ZBVZeroBubble" || schedule == "DualPipeV" ? std::vector<int>{rank, 3 - rank}
                                                                : std::vector<int>{rank, rank + 2};
}

class PipelineWith : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, PipelineWith, testing::ValuesIn(pipeline::pipeline_schedule_names()));

TEST_P(PipelineWith, ActivationCheckpoints) {
  run_rank_threads(2, [name = GetParam()](int rank, const Group& group) {
    const auto indices = deep_indices(name, rank);
    const int num_stages = 2 * static_cast<int>(indices.size());
    DeepBatches expected(1, num_stages);
    std::vector<Deep> blocks;
    std::vector<PipelineStage> stages;
    for (const int index : indices) {
      blocks.emplace_back(static_cast<uint64_t>(10 * index + 1), /*has_checkpoint=*/true);
      stages.emplace_back(blocks.back(), index, num_stages, PipelineStageOptions{.group = group});
    }
    PipelineSchedule schedule(name, stages, kNumParts, {.loss_fn = loss_of(squares)});
    schedule.step(rank == 0 ? expected.inputs : TensorList(), {.target = expected.targets[0]});
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto wanted = expected.blocks[static_cast<size_t>(indices[i])]->parameters();
      const auto own = blocks[i]->parameters();
      for (size_t j = 0; j < own.size(); ++j) require_near(own[j].grad(), wanted[j].grad());
    }
  });
}

// Ranks 0 and 1 are one pipeline, 2 and 3 another one; ranks 0 and 2 have the same stages, and so have 1 and 3.
struct FourRanks {
  FourRanks(int rank, const Group& all)
      : replica(rank / 2),
        place(rank % 2),
        pipeline(test::split_rank_threads(all, {{0, 1}, {2, 3}})),
        replicas(test::split_rank_threads(all, {{0, 2}, {1, 3}})) {}
  int replica, place;
  Group pipeline, replicas;
};

// How a schedule gets a wrapped block.
enum class StageForm { kItself, kByItsForward, kInside };

template <class Wrapped>
struct Around : torch::nn::Module {
  explicit Around(const Wrapped& block) : block(block) { register_module("block", block); }
  at::Tensor forward(at::Tensor x) { return block(x); }
  Wrapped block;
};

template <class Wrapped>
PipelineStage wrapped_stage(const Wrapped& block, StageForm form, int index, int num_stages, const Group& group) {
  const PipelineStageOptions options{.group = group};
  switch (form) {
    case StageForm::kByItsForward:
      return {block.ptr(), pipeline::forward_of(block.ptr()), index, num_stages, options};
    case StageForm::kInside:
      return {std::make_shared<Around<Wrapped>>(block), index, num_stages, options};
    default:
      return {block, index, num_stages, options};
  }
}

// Without what a list of one's own may leave out: reductions, and the last RESHARD of each stage.
pipeline::PipelineOrder without_ends(pipeline::PipelineOrder order) {
  using pipeline::Action, pipeline::ActionKind;
  for (auto& list : order) {
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::kReduceGrad; });
    while (!list.empty() && list.back().kind == ActionKind::kReshard) list.pop_back();
  }
  return order;
}

PipelineSchedule schedule_of(const std::string& name, const std::vector<PipelineStage>& stages, bool has_ends) {
  const PipelineOptions options{.loss_fn = loss_of(squares)};
  PipelineSchedule schedule(name, stages, kNumParts, options);
  if (has_ends) return schedule;
  return {without_ends(schedule.order()), PipelineCsv::kComputeComms, stages, kNumParts, options};
}

void train_replicas(const std::string& name, StageForm form, bool has_ends) {
  run_rank_threads(4, [&](int rank, const Group& all) {
    const FourRanks ranks(rank, all);
    const auto indices = deep_indices(name, ranks.place);
    const int num_stages = 2 * static_cast<int>(indices.size());
    DeepBatches expected(2, num_stages);
    int num_reduced = 0;
    const auto counting = [&](const Group& group, ddp::GradBucket& bucket) {
      ++num_reduced;
      return ddp::allreduce_hook(group, bucket);
    };
    std::vector<DistributedDataParallel<DeepImpl>> blocks;
    std::vector<PipelineStage> stages;
    for (const int index : indices) {
      blocks.emplace_back(Deep(static_cast<uint64_t>(10 * index + 1)), ddp::Options{.process_group = ranks.replicas});
      blocks.back()->register_comm_hook(ranks.replicas, counting);
      stages.push_back(wrapped_stage(blocks.back(), form, index, num_stages, ranks.pipeline));
    }
    auto schedule = schedule_of(name, stages, has_ends);
    const auto replica = static_cast<size_t>(ranks.replica);
    for (int step = 0; step < 2; ++step) {
      for (auto& block : blocks) block->zero_grad();
      run_steps(schedule, step + 1, ranks.place == 0 ? TensorList{expected.inputs[replica]} : TensorList(),
                expected.targets[replica]);
      for (size_t i = 0; i < blocks.size(); ++i) {
        const auto wanted = expected.blocks[static_cast<size_t>(indices[i])]->parameters();
        const auto own = blocks[i]->parameters();
        for (size_t j = 0; j < own.size(); ++j) require_near(own[j].grad(), wanted[j].grad(), 1e-5, name);
      }
      // Once for each stage, with the last microbatch.
      REQUIRE_EQUAL(std::to_string(num_reduced), std::to_string((step + 1) * blocks.size()));
    }
  });
}

TEST_P(PipelineWith, ReplicasOfEachStage) { train_replicas(GetParam(), StageForm::kItself, true); }
TEST_P(PipelineWith, ReplicasThatAForwardRuns) { train_replicas(GetParam(), StageForm::kByItsForward, true); }
TEST_P(PipelineWith, ReplicasInsideOfStages) { train_replicas(GetParam(), StageForm::kInside, true); }
TEST_P(PipelineWith, ReplicasThatAListDoesNotReduce) { train_replicas(GetParam(), StageForm::kItself, false); }

void train_shards(const std::string& name, StageForm form, bool has_ends, bool one_memory) {
  run_rank_threads(4, [&](int rank, const Group& all) {
    const FourRanks ranks(rank, all);
    const auto indices = deep_indices(name, ranks.place);
    const int num_stages = 2 * static_cast<int>(indices.size());
    DeepBatches expected(2, num_stages);
    int num_reduced = 0;
    std::vector<FullySharded<DeepImpl>> blocks;
    std::vector<PipelineStage> stages;
    for (const int index : indices) {
      blocks.push_back(fully_shard(Deep(static_cast<uint64_t>(10 * index + 1)),
                                   fsdp::Options{.process_group = ranks.replicas, .one_memory = one_memory}));
      if (!one_memory) blocks.back()->set_all_reduce_hook([&](const at::Tensor&) { ++num_reduced; });
      stages.push_back(wrapped_stage(blocks.back(), form, index, num_stages, ranks.pipeline));
    }
    auto schedule = schedule_of(name, stages, has_ends);
    const auto replica = static_cast<size_t>(ranks.replica);
    for (int step = 0; step < 3; ++step) {
      for (auto& block : blocks) {
        const at::NoGradGuard no_grad;
        for (at::Tensor shard : block->parameters()) {
          shard.mutable_grad().reset();
          shard.mul_(step == 0 ? 2.0 : step == 1 ? 0.5 : 1.0);  // nobody computes with values of the step before
        }
      }
      run_steps(schedule, step + 1, ranks.place == 0 ? TensorList{expected.inputs[replica]} : TensorList(),
                expected.targets[replica]);
      for (size_t i = 0; i < blocks.size() && step > 0; ++i) {
        const auto wanted = expected.blocks[static_cast<size_t>(indices[i])]->parameters();
        const auto& shards = blocks[i]->sharding().sharded_parameters();
        for (size_t j = 0; j < shards.size(); ++j) {
          const at::Tensor own = shards[j].shard.grad();
          // Halves of 8 rows, or of a bias.
          REQUIRE(own.defined());
          if (own.numel() > 0) require_near(own, wanted[j].grad().tensor_split(2)[replica], 1e-5, name);
        }
      }
      if (!one_memory) REQUIRE_EQUAL(std::to_string(num_reduced), std::to_string((step + 1) * blocks.size()));
    }
  });
}

TEST_P(PipelineWith, ShardsOfEachStage) {
  for (const bool one_memory : {true, false}) train_shards(GetParam(), StageForm::kItself, true, one_memory);
}
TEST_P(PipelineWith, ShardsInsideOfStages) {
  for (const bool one_memory : {true, false}) train_shards(GetParam(), StageForm::kInside, true, one_memory);
}
TEST_P(PipelineWith, ShardsThatAListDoesNotReduce) {
  for (const bool one_memory : {true, false}) train_shards(GetParam(), StageForm::kItself, false, one_memory);
}

// Parameters are cast once for all microbatches.
TEST_P(PipelineWith, Autocast) {
  for (const int kind : {0, 1, 2}) {  // shards in one memory, gathered, copies
    run_rank_threads(4, [&, name = GetParam()](int rank, const Group& all) {
      const FourRanks ranks(rank, all);
      const auto indices = deep_indices(name, ranks.place);
      const int num_stages = 2 * static_cast<int>(indices.size());
      DeepBatches expected(2, num_stages, /*has_autocast=*/true);
      std::vector<FullySharded<DeepImpl>> blocks;
      std::vector<DistributedDataParallel<DeepImpl>> copies;
      std::vector<PipelineStage> stages;
      for (const int index : indices) {
        const Deep block(static_cast<uint64_t>(10 * index + 1));
        if (kind == 2) {
          copies.emplace_back(block, ddp::Options{.process_group = ranks.replicas});
          stages.emplace_back(copies.back(), index, num_stages, PipelineStageOptions{.group = ranks.pipeline});
          continue;
        }
        blocks.push_back(fully_shard(block, fsdp::Options{.process_group = ranks.replicas, .one_memory = kind == 0}));
        stages.emplace_back(blocks.back(), index, num_stages, PipelineStageOptions{.group = ranks.pipeline});
      }
      PipelineSchedule schedule(name, stages, kNumParts, {.loss_fn = loss_of(squares)});
      const auto replica = static_cast<size_t>(ranks.replica);
      {
        const cohort::Autocast region(at::kCPU);
        schedule.step(ranks.place == 0 ? TensorList{expected.inputs[replica]} : TensorList(),
                      {.target = expected.targets[replica]});
      }
      for (size_t i = 0; i < indices.size(); ++i) {
        const auto wanted = expected.blocks[static_cast<size_t>(indices[i])]->parameters();
        for (size_t j = 0; j < wanted.size(); ++j) {
          const auto what = name + " " + std::to_string(kind) + " parameter " + std::to_string(j);
          if (kind == 2) {
            require_near(copies[i]->parameters()[j].grad(), wanted[j].grad(), 1e-4, what);
          } else {
            require_near(blocks[i]->parameters()[j].grad(), wanted[j].grad().tensor_split(2)[replica], 1e-4, what);
          }
        }
      }
    });
  }
}

// ---- tied parameters of replicas

torch::nn::Linear layer_of_replicas(int stage) {
  torch::nn::Linear layer(8, 8);
  draw_parameters(*layer, stage == 0 ? 1 : 11);
  return layer;
}

// Replicas average what several steps have added up, and only then stages exchange it.
TEST(PipelineOfReplicas, TiedGradientsOfSeveralSteps) {
  run_rank_threads(4, [](int rank, const Group& all) {
    const FourRanks ranks(rank, all);
    auto first = layer_of_replicas(0), second = layer_of_replicas(1);
    second->weight = first->weight;
    TensorList inputs, targets;
    for (const uint64_t replica : {0, 1}) {
      inputs.push_back(drawn({8, 8}, 100 + replica));
      targets.push_back(drawn({8, 8}, 200 + replica));
      (squares(second(first(inputs.back())), targets.back()) / 2).backward();
    }
    DistributedDataParallel<torch::nn::LinearImpl> block(layer_of_replicas(ranks.place),
                                                         ddp::Options{.process_group = ranks.replicas});
    PipelineOptions options{.loss_fn = loss_of(squares)};
    options.tied_parameters = {{block->parameters()[0], ranks.place, 1 - ranks.place}};
    const PipelineStage stage(block, ranks.place, 2, {.group = ranks.pipeline});
    PipelineSchedule schedule("1F1B", {stage}, kNumParts, options);
    const auto replica = static_cast<size_t>(ranks.replica);
    for (const int num_steps : {1, 3}) {
      block->zero_grad();
      run_steps(schedule, num_steps, ranks.place == 0 ? TensorList{inputs[replica]} : TensorList(), targets[replica]);
      require_near(block->parameters()[0].grad(), first->weight.grad(), 1e-5, "of the tied parameter");
      require_near(block->parameters()[1].grad(), (ranks.place == 0 ? first : second)->bias.grad(), 1e-5, "of its own");
    }
  });
}

// ---- optimizers that a backward pass steps

TEST(PipelineOfReplicas, AFusedStepGetsTheMeanOfMicrobatches) {
  run_rank_threads(2, [](int rank, const Group& all) {
    DeepBatches expected(2, 1);
    DistributedDataParallel<DeepImpl> block(Deep(1), ddp::Options{.process_group = all});
    torch::optim::SGD optimizer(block->parameters(), 0.1);
    block->fuse_step(optimizer);
    const Group alone = test::split_rank_threads(all, {{0}, {1}});
    PipelineSchedule schedule("GPipe", {PipelineStage(block, 0, 1, {.group = alone})}, kNumParts,
                              {.loss_fn = loss_of(squares)});
    schedule.step({expected.inputs[static_cast<size_t>(rank)]},
                  {.target = expected.targets[static_cast<size_t>(rank)]});
    const auto own = block->parameters(), wanted = expected.blocks[0]->parameters();
    for (size_t i = 0; i < own.size(); ++i) require_near(own[i], wanted[i] - 0.1 * wanted[i].grad());
  });
}

TEST(PipelineOfReplicas, AFusedStepOfTiedParametersMessage) {
  run_rank_threads(2, [](int rank, const Group& all) {
    const Group alone = test::split_rank_threads(all, {{0}, {1}});
    DistributedDataParallel<torch::nn::LinearImpl> block(torch::nn::Linear(8, 8), ddp::Options{.process_group = alone});
    torch::optim::SGD optimizer(block->parameters(), 0.1);
    block->fuse_step(optimizer);
    PipelineOptions options{.loss_fn = loss_of(squares)};
    options.tied_parameters = {{block->parameters()[0], rank, 1 - rank}};
    PipelineSchedule schedule("GPipe", {PipelineStage(block, rank, 2, {.group = all})}, 2, options);
    const std::string error = test::error_of([&] {
      schedule.step(rank == 0 ? TensorList{at::ones({4, 8})} : TensorList(), {.target = at::ones({4, 8})});
    });
    const std::string text =
        "the optimizer of a stage steps while backward runs (fuse_step), but its gradients must first be added to "
        "those of another stage (tied_parameters)\n    hint: call optimizer.step() after the schedule's step() instead";
    REQUIRE_EQUAL(error,
                  "[cohort] pipeline: the step failed\n  rank 0: pipeline: " + text + "\n  rank 1: pipeline: " + text);
  });
}

}  // namespace
}  // namespace cohort
