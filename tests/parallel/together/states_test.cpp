// States of models that are shared out in several ways at once: what they are, and that a run goes on from them on other ranks,
// shared out otherwise.
#include <gtest/gtest.h>

#include <stdexcept>

#include "cohort/checkpoint/sharded/async_save.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/parallel/together/gpt_run.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::GptRun;
using test::run_workers;
using test::TemporaryFolder;

constexpr int64_t kRows = 24, kStepsBefore = 3, kStepsAfter = 3;

// "2x2x1": copies, shards, tp; "1x2x2x2": and pp; "1x1x1x2 ZBVZeroBubble": a schedule.
parallel::ParallelDims dims_of(const std::string& text) {
  return {.dp_replicate = text.at(0) - '0',
          .dp_shard = text.at(2) - '0',
          .tp = text.at(4) - '0',
          .pp = text.size() > 5 ? text.at(6) - '0' : 1};
}

std::string schedule_of(const std::string& text) { return text.size() > 8 ? text.substr(8) : "1F1B"; }

// Four layers, for two stages on each rank.
test::SmallGptOptions model_of(bool is_tied) { return {.tie_weights = is_tied, .num_layers = is_tied ? 4 : 2}; }

std::string folder_of(const std::string& name) { return test::worker_arguments().at(0) + "/" + name; }

GptRun trained_alone(int64_t steps, bool is_tied = false) {
  auto run = test::alone(model_of(is_tied));
  for (int64_t step = 0; step < steps; ++step) run.train_step(kRows);
  return run;
}

// Of a model, as by one process: all of it, whatever a rank has.
void expect_state_of(const GptRun& expected, const GptRun& run, const std::string& what) {
  const checkpoint::StateDictOptions full{.full_state_dict = true};
  const auto one = checkpoint::get_state_dict(*expected.module, *expected.optimizer);
  const auto all = checkpoint::get_state_dict(*run.module, *run.optimizer, full);
  for (const auto& [ours, theirs] : {std::pair(&one.model, &all.model), {&one.optimizer, &all.optimizer}}) {
    // A stage has some of them.
    if (!run.pipeline && ours->keys() != theirs->keys()) throw std::runtime_error(what + ": other keys");
    for (const auto& item : *theirs) {
      if (!item.value().is_tensor()) continue;
      const bool has_other_name =
          !ours->contains(item.key());  // the last stage's weight: the embedding's state is its own
      const auto& key = has_other_name ? item.value().tied.others.at(0) : item.key();
      const auto &value = (*ours)[key].tensor, &other = item.value().tensor;
      if (!at::allclose(value, other, 1e-4, 1e-6)) {
        throw std::runtime_error(what + ": " + item.key() + " differs by " +
                                 std::to_string((value - other).abs().max().item<double>()));
      }
    }
  }
}

// Arguments: folder, "tied" or "", layout.
COHORT_WORKER(together_saves) {
  init_process_group(test::backend_of_tests().c_str());
  const bool is_tied = test::worker_arguments().at(1) == "tied";
  const auto& layout = test::worker_arguments().at(2);
  auto run = test::together(dims_of(layout), {.model = model_of(is_tied), .pp_schedule = schedule_of(layout)});
  for (int64_t step = 0; step < kStepsBefore; ++step) run.train_step(kRows);
  expect_state_of(trained_alone(kStepsBefore, is_tied), run, layout);
  const auto state = checkpoint::get_state_dict(*run.module, *run.optimizer);
  checkpoint::save_sharded(state.model, folder_of("model"), {.sync_files = false});
  checkpoint::AsyncSaveOptions options;
  options.sync_files = false;
  checkpoint::async_save(state.optimizer, folder_of("optimizer"), options).wait();
}

// Arguments: folder, "tied" or "", layouts.
COHORT_WORKER(together_resumes) {
  init_process_group(test::backend_of_tests().c_str());
  const bool is_tied = test::worker_arguments().at(1) == "tied";
  for (size_t i = 2; i < test::worker_arguments().size(); ++i) {
    const auto& layout = test::worker_arguments()[i];
    auto run = test::together(dims_of(layout), {.model = model_of(is_tied), .pp_schedule = schedule_of(layout)});
    auto state = checkpoint::get_state_dict(*run.module, *run.optimizer);
    for (const auto& item : state.model) item.value().tensor.detach().fill_(-1);
    checkpoint::load_sharded(state.model, folder_of("model"), {.strict = true});
    // Of a tied weight stages have saved two states, of which a whole model needs one.
    checkpoint::load_sharded(state.optimizer, folder_of("optimizer"), {.strict = !is_tied});
    checkpoint::set_state_dict(*run.module, *run.optimizer, state);
    run.step = kStepsBefore;
    auto expected = trained_alone(kStepsBefore, is_tied);
    expect_state_of(expected, run, layout + " resumed");
    for (int64_t step = 0; step < kStepsAfter; ++step) {
      const auto one = expected.train_step(kRows), got = run.train_step(kRows);
      if (std::abs(one.loss - got.loss) < 1e-5 && std::abs(one.norm - got.norm) < 1e-5) continue;
      throw std::runtime_error(layout + ": after resuming the loss is " + std::to_string(got.loss) + ", not " +
                               std::to_string(one.loss));
    }
  }
}

// By number of ranks.
using Layouts = std::vector<std::pair<int, std::vector<std::string>>>;

void expect_to_go_on(const std::pair<int, std::string>& saved, const Layouts& others, const std::string& tied = "") {
  const TemporaryFolder folder;
  run_workers("together_saves", {.world_size = saved.first, .arguments = {folder.file("run"), tied, saved.second}})
      .expect_success();
  for (const auto& [size, layouts] : others) {
    std::vector<std::string> arguments{folder.file("run"), tied};
    arguments.insert(arguments.end(), layouts.begin(), layouts.end());
    run_workers("together_resumes", {.world_size = size, .arguments = arguments}).expect_success();
  }
}

TEST(TogetherStates, ARunGoesOnShardedOtherwise) {
  const Layouts others{
      {1, {"1x1x1"}}, {2, {"1x1x2", "1x2x1"}}, {4, {"2x1x2", "4x1x1", "1x2x2", "1x4x1", "1x1x4"}}, {8, {"2x2x2"}}};
  expect_to_go_on({8, "2x2x2"}, others);
  expect_to_go_on({2, "1x1x2"}, others);
}

TEST(TogetherStates, ARunOfStagesGoesOnShardedOtherwise) {
  expect_to_go_on({8, "1x2x2x2"}, {{1, {"1x1x1"}}, {2, {"1x1x1x2"}}, {4, {"2x1x1x2", "1x2x2"}}});
}

// Of a whole model's weight the optimizer has one state, of stages' two.
TEST(TogetherStates, OfTiedWeightsARunGoesOnInStages) {
  const std::string both_on_one = "1x1x1x2 ZBVZeroBubble";
  expect_to_go_on({1, "1x1x1"}, {{2, {"1x1x1x2", both_on_one}}, {4, {"1x1x2x2", "1x2x1x2"}}}, "tied");
  for (const char* const layout : {"1x1x2", "1x2x1"}) expect_to_go_on({2, layout}, {{2, {"1x1x1x2"}}}, "tied");
  expect_to_go_on({2, both_on_one}, {{1, {"1x1x1"}}, {2, {"1x1x1x2", "1x1x2"}}}, "tied");
}

// A rank's stages are one model's parts, whose tied weight is there under both names.
COHORT_WORKER(together_tied_stages) {
  init_process_group(test::backend_of_tests().c_str());
  const test::SmallGptOptions model{.tie_weights = true, .num_layers = 4};
  for (const parallel::ParallelDims& dims :
       {parallel::ParallelDims{.pp = 2}, parallel::ParallelDims{.dp_shard = -1, .pp = 2}}) {
    if (dims.dp_shard == 1 && get_world_size() > 2) continue;
    auto run = test::together(dims, {.model = model, .pp_schedule = "ZBVZeroBubble"});
    auto expected = test::alone(model), other = test::alone(model);
    for (int64_t step = 0; step < 2; ++step) run.train_step(kRows), expected.train_step(kRows);
    checkpoint::save_sharded(checkpoint::get_model_state_dict(*run.module), folder_of("model"), {.sync_files = false});
    auto weights = checkpoint::get_model_state_dict(*other.module);
    for (const auto& item : weights) item.value().tensor.detach().fill_(-1);
    checkpoint::load_sharded(weights, folder_of("model"), {.strict = true});
    checkpoint::set_model_state_dict(*other.module, weights);
    for (const auto& item : weights) {
      REQUIRE(at::allclose(item.value().tensor, expected.module->named_parameters()[item.key()], 1e-4, 1e-6));
    }
  }
}

TEST(TogetherStates, OfTiedWeightsAndSeveralStages) {
  for (const int size : {2, 4}) {
    const TemporaryFolder folder;
    run_workers("together_tied_stages", {.world_size = size, .arguments = {folder.file("run")}}).expect_success();
  }
}

COHORT_WORKER(together_from_rank0) {
  init_process_group(test::backend_of_tests().c_str());
  const auto expected = trained_alone(2);
  checkpoint::ModelAndOptimizerState state;
  if (get_rank() == 0) state = checkpoint::get_state_dict(*expected.module, *expected.optimizer);
  for (const char* const layout : {"1x2x2", "2x1x2", "1x1x4"}) {
    auto run = test::together(dims_of(layout));
    checkpoint::set_state_dict(*run.module, *run.optimizer, state,
                               {.full_state_dict = true, .broadcast_from_rank0 = true});
    expect_state_of(expected, run, layout);
  }
}

TEST(TogetherStates, FullOnesFromRankZero) { run_workers("together_from_rank0", {.world_size = 4}).expect_success(); }

}  // namespace
}  // namespace cohort
