// Every way in which up to 8 ranks can share a GPT out, by copies, shards, tensor and context parallelism: losses and gradient
// norms are those of one process.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "tests/parallel/together/gpt_run.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::GptRun;
using test::run_workers;

constexpr int64_t kSteps = 4;
constexpr std::chrono::seconds kHangLimit{380};

/// Every combination on shm, which users get by default. Gloo's groups of many ranks are slow to make, and what is above
/// them does not know how many there are.
bool is_left_out(size_t combination) {
  return test::backend_of_tests() == "gloo" && get_world_size() > 4 && combination % 3 != 0;
}

using Curve = std::vector<GptRun::Numbers>;

Curve curve_of(GptRun run, int64_t rows) {
  Curve curve;
  for (int64_t step = 0; step < kSteps; ++step) curve.push_back(run.train_step(rows));
  return curve;
}

void expect_same(const Curve& expected, const Curve& got, const std::string& what) {
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto off = std::max(std::abs(expected[step].loss - got[step].loss),
                              std::abs(expected[step].norm - got[step].norm) / expected[step].norm);
    if (off < 1e-5) continue;
    throw std::runtime_error(what + ": step " + std::to_string(step) + ": loss " + std::to_string(got[step].loss) +
                             ", norm " + std::to_string(got[step].norm) + ", but one process has " +
                             std::to_string(expected[step].loss) + " and " + std::to_string(expected[step].norm));
  }
}

COHORT_WORKER(together_combinations) {
  init_process_group(test::backend_of_tests().c_str());
  std::map<int64_t, Curve> expected;
  size_t combination = 0;
  for (const auto& dims : test::all_dims(get_world_size())) {
    if (is_left_out(combination++)) continue;
    const auto rows = test::rows_for(dims);
    if (!expected.contains(rows)) expected[rows] = curve_of(test::alone(), rows);
    REQUIRE(expected[rows].back().loss < expected[rows].front().loss - 0.01);
    for (const bool one_memory : {true, false}) {
      if (dims.cp > 1 && !one_memory) continue;  // to fully_shard it is another dp_shard
      const auto got = curve_of(test::together(dims, {.one_memory = one_memory}), rows);
      expect_same(expected[rows], got, test::text_of(dims) + (one_memory ? "" : ", gathered"));
    }
  }
}

class TogetherCombinations : public testing::TestWithParam<int> {};

TEST_P(TogetherCombinations, HaveTheLossesOfOneProcess) {
  run_workers("together_combinations", {.world_size = GetParam(), .time_limit = kHangLimit}).expect_success();
}

INSTANTIATE_TEST_SUITE_P(Ranks, TogetherCombinations, testing::Range(1, 9), testing::PrintToStringParamName());

// Microbatches of one size: the mean of their losses is that of the batch.
int microbatches_of(const parallel::ParallelDims& dims) {
  const bool has_more = test::rows_for(dims) / dims.dp_size() % (2 * dims.pp) == 0 && get_world_size() <= 4;
  return static_cast<int>(has_more ? 2 * dims.pp : dims.pp);
}

COHORT_WORKER(together_pipelines) {
  init_process_group(test::backend_of_tests().c_str());
  std::map<int64_t, Curve> expected;  // by the number of layers
  size_t combination = 0;
  for (const auto& dims : test::all_pipelines(get_world_size())) {
    if (is_left_out(combination++)) continue;
    const test::SmallGptOptions model{.num_layers = dims.pp};
    if (!expected.contains(dims.pp)) expected[dims.pp] = curve_of(test::alone(model), 24);
    for (const bool one_memory : {true, false}) {
      if (!one_memory && (dims.cp > 1 || dims.dp_size() == 1 || dims.pp > 2)) continue;
      const auto got = curve_of(
          test::together(dims, {.one_memory = one_memory, .model = model, .pp_microbatches = microbatches_of(dims)}),
          24);
      expect_same(expected[dims.pp], got, test::text_of(dims) + (one_memory ? "" : ", gathered"));
    }
  }
}

class TogetherPipelines : public testing::TestWithParam<int> {};

TEST_P(TogetherPipelines, HaveTheLossesOfOneProcess) {
  run_workers("together_pipelines", {.world_size = GetParam(), .time_limit = kHangLimit}).expect_success();
}

INSTANTIATE_TEST_SUITE_P(Ranks, TogetherPipelines, testing::Values(2, 3, 4, 6, 8), testing::PrintToStringParamName());

// Several stages on each rank; the first and the last one have a weight in common.
COHORT_WORKER(together_schedules) {
  init_process_group(test::backend_of_tests().c_str());
  const test::SmallGptOptions model{.tie_weights = true, .num_layers = 4};
  const auto expected = curve_of(test::alone(model), 24);
  const auto expect = [&](const parallel::ParallelDims& dims, const std::string& schedule, bool one_memory) {
    const auto got = curve_of(
        test::together(dims, {.one_memory = one_memory, .model = model, .pp_schedule = schedule, .pp_microbatches = 4}),
        24);
    expect_same(expected, got, test::text_of(dims) + ", " + schedule + (one_memory ? "" : ", gathered"));
  };
  for (const auto& schedule : pipeline::pipeline_schedule_names()) {
    expect({.tp = 2, .pp = 2}, schedule, true);
    expect({.dp_shard = 2, .pp = 2}, schedule, true);
  }
  for (const char* const schedule : {"Interleaved1F1B", "ZBVZeroBubble"}) {
    expect({.dp_shard = 2, .pp = 2}, schedule, false);
  }
}

TEST(Together, EverySchedule) {
  run_workers("together_schedules", {.world_size = 4, .time_limit = kHangLimit}).expect_success();
}

COHORT_WORKER(together_checkpointed_stages) {
  init_process_group(test::backend_of_tests().c_str());
  const auto expected = curve_of(test::alone(), 24);
  for (const parallel::ParallelDims& dims :
       {parallel::ParallelDims{.tp = 2, .pp = 2}, parallel::ParallelDims{.dp_shard = 2, .pp = 2}}) {
    const auto got = curve_of(
        test::together(dims, {.activation_checkpointing = 1, .pp_schedule = "GPipe", .pp_microbatches = 3}), 24);
    expect_same(expected, got, test::text_of(dims) + ", checkpointed");
  }
}

TEST(Together, ActivationCheckpointingInStages) {
  run_workers("together_checkpointed_stages", {.world_size = 4}).expect_success();
}

COHORT_WORKER(together_checkpointed_and_tied) {
  init_process_group(test::backend_of_tests().c_str());
  const auto expected = curve_of(test::alone(), 24), tied = curve_of(test::alone({.tie_weights = true}), 24);
  for (const parallel::ParallelDims& dims :
       {parallel::ParallelDims{.tp = 4}, parallel::ParallelDims{.dp_shard = 2, .tp = 2}}) {
    const auto again = curve_of(test::together(dims, {.activation_checkpointing = 1}), 24);
    expect_same(expected, again, test::text_of(dims) + ", checkpointed");
    expect_same(tied, curve_of(test::together(dims, {.model = {.tie_weights = true}}), 24),
                test::text_of(dims) + ", tied");
  }
}

TEST(Together, ActivationCheckpointingAndTiedWeights) {
  run_workers("together_checkpointed_and_tied", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort
