// What goes wrong on one rank, all ranks of a pipeline learn: nobody waits for one that has given up.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <functional>
#include <iostream>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "tests/parallel/pipeline/small_stages.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_rank_threads;
using testing::HasSubstr;

constexpr int kNumRanks = 3;

struct FailingImpl : torch::nn::Module {
  FailingImpl() : linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(at::Tensor x) {
    if (num_calls == dies_at) raise(SIGKILL);
    if (num_calls++ == fails_at) throw std::runtime_error("the layer is broken");
    return linear(x);
  }
  torch::nn::Linear linear;
  int num_calls = 0, fails_at = -1, dies_at = -1;
};
TORCH_MODULE(Failing);

struct Fault {
  int stage_rank = -1;     ///< whose forward throws
  int forward_number = 0;  ///< in which call
  int loss_number = -1;    ///< which call of loss_fn throws
  int rows = 8;
  std::string name = "1F1B";
  int num_microbatches_of_last = 4;
  bool last_has_loss = true;
};

std::string text_of_error(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}

// What each rank's steps have thrown in the end.
std::array<std::string, kNumRanks> errors_with(const Fault& fault) {
  std::array<std::string, kNumRanks> errors;
  run_rank_threads(kNumRanks, [&](int rank, const Group& group) {
    Failing net;
    if (rank == fault.stage_rank) net->fails_at = fault.forward_number;
    const bool is_last = rank == kNumRanks - 1;
    PipelineOptions options;
    int num_losses = 0;
    options.loss_fn = [&](const TensorList& outputs, const at::Tensor& target) {
      TORCH_CHECK(num_losses++ != fault.loss_number, "no such class");
      return at::mse_loss(outputs[0], target);
    };
    if (is_last && !fault.last_has_loss) options.loss_fn = {};
    PipelineSchedule schedule(fault.name, {PipelineStage(net, rank, kNumRanks, {.group = group})},
                              is_last ? fault.num_microbatches_of_last : 4, options);
    const auto step = [&] {
      schedule.step(rank == 0 ? TensorList{at::ones({fault.rows, 4})} : TensorList(),
                    {.target = at::ones({fault.rows, 4})});
    };
    errors[static_cast<size_t>(rank)] = text_of_error([&] {
      for (int i = 0; i < 3; ++i) step();
    });
    REQUIRE_EQUAL(
        text_of_error(step),
        "[cohort] pipeline: an earlier step failed, so the ranks no longer agree on the next step\n  hint: start "
        "again from a checkpoint");
  });
  return errors;
}

void expect_errors(const Fault& fault, int failing_rank, const std::string& text) {
  const auto errors = errors_with(fault);
  for (int rank = 0; rank < kNumRanks; ++rank) {
    const std::string head =
        rank == failing_rank ? "" : "[cohort] pipeline: the step failed\n  rank " + std::to_string(failing_rank) + ": ";
    EXPECT_EQ(errors[static_cast<size_t>(rank)], head + text) << "on rank " << rank;
  }
}

TEST(PipelineFailure, OfTheLossMessage) {
  // In the first step, in which shapes are announced, and in a later one.
  expect_errors({.loss_number = 1}, 2, "no such class ([cohort] pipeline: rank 2 ran 2F1, step 6 of 19 in its list)");
  expect_errors({.loss_number = 4}, 2, "no such class ([cohort] pipeline: rank 2 ran 2F0, step 2 of 19 in its list)");
  expect_errors({.loss_number = 11}, 2, "no such class ([cohort] pipeline: rank 2 ran 2F3, step 14 of 19 in its list)");
}

TEST(PipelineFailure, OfAStageMessage) {
  for (const char* const name : {"GPipe", "1F1B"}) {
    for (const int rank : {0, 1, 2}) {
      for (const int number : {0, 2, 3, 4, 7}) {
        expect_errors({.stage_rank = rank, .forward_number = number, .name = name}, rank, "the layer is broken");
      }
    }
  }
}

TEST(PipelineFailure, OfABatchMessage) {
  const std::string text =
      "Tensor size 3 is smaller than num_chunks\n"
      "    hint: dimension 0 is split into 4 microbatches; use fewer of them, or a larger batch";
  for (const std::string& error : errors_with({.rows = 3})) {
    EXPECT_EQ(error, "[cohort] pipeline: the step failed\n  rank 0: " + text + "\n  rank 2: " + text);
  }
}

TEST(PipelineFailure, OfDifferentPipelinesMessage) {
  const std::string head = "[cohort] pipeline: no step was made, as the ranks differ: ";
  for (const std::string& text : errors_with({.num_microbatches_of_last = 8})) {
    EXPECT_EQ(text, head + "the number of microbatches is 4 on ranks 0 and 1, but 8 on rank 2" + test::kPipelinesAlike);
  }
  for (const std::string& text : errors_with({.last_has_loss = false})) {
    EXPECT_EQ(text, head + "loss_fn is set on ranks 0 and 1, but not set on rank 2" + test::kPipelinesAlike);
  }
}

// Rank 1 is killed in its stage's forward.
COHORT_WORKER(pipeline_until_a_rank_is_lost) {
  init_process_group(InitOptions{.backend = test::backend_of_tests()});
  const int rank = get_rank();
  Failing net;
  PipelineOptions options;
  options.loss_fn =
      loss_of([](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); });
  PipelineSchedule schedule("1F1B", {PipelineStage(net, rank, kNumRanks)}, 4, options);
  const at::Tensor batch = at::ones({8, 4});
  try {
    for (int step = 0; step < 100; ++step) {
      if (rank == 1 && step == 2) net->dies_at = net->num_calls + 1;
      schedule.step(rank == 0 ? TensorList{batch} : TensorList(), {.target = batch});
    }
  } catch (const c10::DistBackendError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(PipelineFailure, ALostRankIsNamed) {
  const auto results = test::run_workers("pipeline_until_a_rank_is_lost", {.world_size = kNumRanks});
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output, HasSubstr("caused by: rank 1 (pid ")) << results[rank].output;
    EXPECT_THAT(results[rank].output, HasSubstr("[cohort] pipeline: rank " + std::to_string(rank) + " ran "));
  }
}

// Four ranks: two stages, each computed by two ranks together. argument 0: how.
COHORT_WORKER(pipeline_of_stages_that_meet) {
  init_process_group();
  const std::string how = test::worker_arguments().at(0);
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"pp", "other"});
  const Group pipeline = mesh.group("pp"), others = mesh.group("other");
  Failing net;
  if (get_rank() == 0) net->fails_at = 5;  // microbatch 1 of the second step
  const auto stage_of = [&](const auto& part) {
    return PipelineStage(part, static_cast<int>(mesh.local_rank("pp")), 2, {.group = pipeline});
  };
  std::vector<PipelineStage> stages;
  if (how == "tp") {
    stages.push_back(stage_of(torch::nn::Sequential(
        net, parallel::ColumnParallelLinear(4, 8, parallel::ColumnParallelOptions{.group = others}),
        parallel::RowParallelLinear(8, 4, parallel::RowParallelOptions{.group = others}))));
  } else if (how == "fully_shard") {
    stages.push_back(stage_of(fully_shard(net, fsdp::Options{.process_group = others})));
  } else {
    stages.push_back(stage_of(DistributedDataParallel<FailingImpl>(net, ddp::Options{.process_group = others})));
  }
  PipelineOptions options;
  options.loss_fn =
      loss_of([](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); });
  PipelineSchedule schedule("1F1B", stages, 4, options);
  const at::Tensor batch = at::ones({8, 4});
  for (int step = 0; step < 3; ++step) schedule.step({batch}, {.target = batch});
}

TEST(PipelineFailure, OfAStageThatMeetsOtherRanksEndsItsProcess) {
  for (const std::string how : {"tp", "fully_shard", "replicas"}) {
    const auto results = test::run_workers("pipeline_of_stages_that_meet", {.world_size = 4, .arguments = {how}});
    for (const auto& result : results.ranks) {
      EXPECT_EQ(result.exit_code, 1) << how << ", rank " << result.rank << "\n" << result.errors;
      EXPECT_THAT(result.errors, HasSubstr(result.rank == 0 ? "the layer is broken" : "caused by: rank ")) << how;
    }
  }
}

}  // namespace
}  // namespace cohort
