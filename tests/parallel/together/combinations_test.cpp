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
  for (const auto& dims : test::all_dims(get_world_size())) {
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
  run_workers("together_combinations", {.world_size = GetParam(), .time_limit = std::chrono::seconds(200)})
      .expect_success();
}

INSTANTIATE_TEST_SUITE_P(Ranks, TogetherCombinations, testing::Range(1, 9), testing::PrintToStringParamName());

COHORT_WORKER(together_checkpointed_and_tied) {
  init_process_group(test::backend_of_tests().c_str());
  const auto expected = curve_of(test::alone(), 24), tied = curve_of(test::alone(/*tie_weights=*/true), 24);
  for (const ParallelDims& dims : {ParallelDims{.tp = 4}, ParallelDims{.dp_shard = 2, .tp = 2}}) {
    const auto again = curve_of(test::together(dims, {.activation_checkpointing = 1}), 24);
    expect_same(expected, again, test::text_of(dims) + ", checkpointed");
    expect_same(tied, curve_of(test::together(dims, {.tie_weights = true}), 24), test::text_of(dims) + ", tied");
  }
}

TEST(Together, ActivationCheckpointingAndTiedWeights) {
  run_workers("together_checkpointed_and_tied", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort
