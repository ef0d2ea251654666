// The Checkpointer on several ranks, which are processes.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/comm/collectives/collectives.h"
#include "tests/checkpoint/rank_files.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::rank_files;
using test::run_workers;
using test::TemporaryFolder;

ShardedStateDict rank_state(double value) {
  ShardedStateDict state;
  state.insert("weight", at::full({5}, value));
  return state;
}

double value_of(const ShardedStateDict& state) { return state["weight"].tensor[0].item<double>(); }

const std::string& run_folder() { return test::worker_arguments().front(); }

// "rank 1 (host): "
std::string at_rank(int rank) { return "rank " + std::to_string(rank) + " (" + base::host_name() + "): "; }

// The format of tests, and what rank 1 does before it writes.
CheckpointFormat with_trouble_on_rank_1(const std::function<void()>& trouble) {
  CheckpointFormat format = rank_files();
  format.save = [trouble, save = format.save](const auto& state, const auto& folder, const auto& group) {
    if (get_rank(group) == 1) trouble();
    return save(state, folder, group);
  };
  return format;
}

COHORT_WORKER(checkpointer_saves) {
  init_process_group(test::backend_of_tests().c_str());
  Checkpointer checkpoints(run_folder(), {.every_steps = 2, .keep_last = 2, .format = rank_files()});
  for (int step = 1; step <= 6; ++step)
    checkpoints.maybe_save([&] { return rank_state(10 * step + get_rank()); }, step);
  ShardedStateDict state = rank_state(-1);
  REQUIRE(checkpoints.load_latest(state) == 6);
  REQUIRE(value_of(state) == 60 + get_rank());
  checkpoints.load(state, 4);
  REQUIRE(value_of(state) == 40 + get_rank());
  // Only rank 1's file of the newest is damaged: nobody takes it.
  barrier();
  if (get_rank() == 1) {
    std::fstream(run_folder() + "/step-00000006/rank-1.safetensors", std::ios::in | std::ios::out)
        .seekp(-1, std::ios::end)
        .put('x');
  }
  barrier();
  REQUIRE(checkpoints.load_latest(state) == 4);
  REQUIRE(value_of(state) == 40 + get_rank());
}

TEST(CheckpointerRanks, SaveTogetherAndAgreeOnWhatIsLoaded) {
  const TemporaryFolder folder;
  const auto results = run_workers("checkpointer_saves", {.arguments = {folder.file("run")}});
  results.expect_success();
  EXPECT_EQ(folder.num_files(), 1u);
  EXPECT_TRUE(fs::exists(folder.file("run/step-00000004/manifest.json")));
  EXPECT_FALSE(fs::exists(folder.file("run/step-00000002")));
  EXPECT_THAT(results[0].errors, testing::HasSubstr("skips \"" + folder.file("run/step-00000006") +
                                                    "\": \"rank-1.safetensors\" is damaged"));
  EXPECT_THAT(results[1].errors, testing::Not(testing::HasSubstr("skips")));
}

COHORT_WORKER(checkpointer_sharded) {
  init_process_group(test::backend_of_tests().c_str());
  Checkpointer checkpoints(run_folder(), {.every_steps = 1});
  ShardedStateDict state = rank_state(7);
  state.insert("rank." + std::to_string(get_rank()), StateValue(at::full({3}, get_rank())));
  checkpoints.maybe_save([&] { return state; }, 1);
  state["weight"].tensor.zero_();
  REQUIRE(checkpoints.load_latest(state) == 1);
  REQUIRE(value_of(state) == 7);
}

TEST(CheckpointerRanks, ByDefaultAnyNumberOfRanksLoads) {
  const TemporaryFolder folder;
  run_workers("checkpointer_sharded", {.world_size = 3, .arguments = {folder.file("run")}}).expect_success();
  ShardedStateDict state = rank_state(0);
  for (int rank = 0; rank < 3; ++rank) state.insert("rank." + std::to_string(rank), StateValue(at::full({3}, -1.0)));
  EXPECT_EQ(Checkpointer(folder.file("run")).load_latest(state), 1);
  EXPECT_EQ(value_of(state), 7);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(state["rank." + std::to_string(rank)].tensor.equal(at::full({3}, double(rank))));
}

COHORT_WORKER(checkpointer_one_fails) {
  init_process_group(test::backend_of_tests().c_str());
  { Checkpointer(run_folder(), {.format = rank_files()}).save(rank_state(1), 1); }
  const auto format = with_trouble_on_rank_1([] { throw std::runtime_error("a full disk"); });
  Checkpointer checkpoints(run_folder(), {.format = format});
  checkpoints.save(rank_state(2), 2);
  const std::string text = test::error_of([&] { checkpoints.wait(); });
  REQUIRE(text == "[cohort] Checkpointer: cannot save step 2 in \"" + run_folder() + "\"\n  caused by: " + at_rank(1) +
                      "a full disk\n  hint: the checkpoints that were there are untouched");
  REQUIRE(checkpoints.latest()->step == 1);
}

TEST(CheckpointerRanks, WhatOneCannotDoIsAnErrorOnAll) {
  const TemporaryFolder folder;
  run_workers("checkpointer_one_fails", {.arguments = {folder.file("run")}}).expect_success();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()), 1);
}

COHORT_WORKER(checkpointer_other_folder) {
  init_process_group(test::backend_of_tests().c_str());
  { Checkpointer(run_folder(), {.format = rank_files()}).save(rank_state(1), 1); }
  const std::string own = get_rank() == 0 ? run_folder() : run_folder() + "-elsewhere";
  Checkpointer checkpoints(own, {.asynchronous = false, .format = rank_files()});
  const std::string hint =
      "\n  hint: all ranks need the same folder: give one on a file system that all hosts share, by its absolute path";
  REQUIRE(test::error_of([&] { checkpoints.latest(); }) ==
          "[cohort] Checkpointer: not all ranks see the same checkpoints in \"" + own +
              "\"\n  caused by: " + at_rank(1) + "\"" + run_folder() +
              "-elsewhere/step-00000001\": it is unfinished: it has no manifest.json" + hint);
  const std::string text = test::error_of([&] { checkpoints.save(rank_state(2), 2); });
  REQUIRE(text.starts_with("[cohort] Checkpointer: cannot save step 2 in \"" + own + "\"\n  caused by: " + at_rank(1) +
                           "does not see \"" + run_folder() + "-elsewhere/.saving-step-00000002-"));
  REQUIRE(text.ends_with(", which rank 0 has made\n  hint: the checkpoints that were there are untouched" + hint));
}

TEST(CheckpointerRanks, OneThatDoesNotSeeTheFolderIsNamed) {
  const TemporaryFolder folder;
  run_workers("checkpointer_other_folder", {.arguments = {folder.file("run")}}).expect_success();
  EXPECT_EQ(folder.num_files(), 1u);
}

COHORT_WORKER(checkpointer_stops) {
  init_process_group(test::backend_of_tests().c_str());
  Checkpointer checkpoints(run_folder(), {.stop_signals = {SIGTERM}, .format = rank_files()});
  int step = 0;
  while (!checkpoints.stop_requested()) {
    ++step;
    if (step == 3 && get_rank() == 1) std::raise(SIGTERM);
    REQUIRE(step < 100);
    checkpoints.maybe_save([&] { return rank_state(step); }, step);
  }
  REQUIRE(step == 3);
  REQUIRE(checkpoints.latest()->step == 3);
}

TEST(CheckpointerRanks, ASignalToOneIsASaveOfTheSameStepByAll) {
  const TemporaryFolder folder;
  run_workers("checkpointer_stops", {.world_size = 3, .arguments = {folder.file("run")}}).expect_success();
}

COHORT_WORKER(checkpointer_time) {
  init_process_group(test::backend_of_tests().c_str());
  // Rank 1's clock alone would save at each step.
  const std::chrono::milliseconds every(get_rank() == 0 ? 2000 : 1);
  Checkpointer checkpoints(run_folder(), {.every = every, .format = rank_files()});
  const auto state = [] { return rank_state(1); };
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(!checkpoints.maybe_save(state, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  REQUIRE(checkpoints.maybe_save(state, 2));
  REQUIRE(test::error_of([&] { checkpoints.maybe_save(state, 3 + get_rank()); }) ==
          "[cohort] Checkpointer: maybe_save() was called with step 3 on one rank and with step 4 on another\n"
          "  hint: call it on all ranks after each step, with the same number");
}

TEST(CheckpointerRanks, RankZeroSaysWhenItIsTime) {
  const TemporaryFolder folder;
  run_workers("checkpointer_time", {.arguments = {folder.file("run")}}).expect_success();
}

COHORT_WORKER(checkpointer_refuses) {
  init_process_group(test::backend_of_tests().c_str());
  // Rank 1 has written when rank 0 still waits, and would take another save.
  std::latch refused(1);
  CheckpointFormat format = rank_files();
  format.save = [&refused, save = format.save](const auto& state, const auto& folder, const auto& group) {
    if (get_rank(group) == 0) refused.wait();
    return save(state, folder, group);
  };
  Checkpointer checkpoints(run_folder(), {.when_busy = WhenBusy::kRefuse, .format = format});
  REQUIRE(checkpoints.save(rank_state(1), 1));
  REQUIRE(!checkpoints.save(rank_state(2), 2));
  refused.count_down();
  checkpoints.wait();
  REQUIRE(checkpoints.save(rank_state(3), 3 + get_rank()));
  const std::string text = test::error_of([&] { checkpoints.wait(); });
  REQUIRE(text.find("caused by: " + at_rank(1) + "saves step 4, but rank 0 another one\n") != std::string::npos);
}

TEST(CheckpointerRanks, RefuseAlike) {
  const TemporaryFolder folder;
  run_workers("checkpointer_refuses", {.arguments = {folder.file("run")}}).expect_success();
}

COHORT_WORKER(checkpointer_loses_a_rank) {
  init_process_group(test::backend_of_tests().c_str());
  { Checkpointer(run_folder(), {.format = rank_files()}).save(rank_state(1), 1); }
  Checkpointer checkpoints(run_folder(), {.format = with_trouble_on_rank_1([] { ::_exit(0); })});
  checkpoints.save(rank_state(2), 2);
  const std::string text = test::error_of([&] { checkpoints.wait(); });
  REQUIRE(text.starts_with("[cohort] Checkpointer: cannot save step 2 in \"" + run_folder() +
                           "\"\n  caused by: " + at_rank(0)));
  std::fputs("rank 0 has noticed\n", stderr);
  ::_exit(0);
}

TEST(CheckpointerRanks, ARankThatDiesWhileItSavesLeavesThePreviousOne) {
  const TemporaryFolder folder;
  const auto results = run_workers("checkpointer_loses_a_rank", {.arguments = {folder.file("run")}});
  EXPECT_THAT(results[0].errors, testing::HasSubstr("rank 0 has noticed"));
  EXPECT_TRUE(fs::exists(folder.file("run/step-00000001")));
  EXPECT_FALSE(fs::exists(folder.file("run/step-00000002")));
  fs::remove(folder.file("run/.lock"));  // of a process that is gone
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()), 1);
}

COHORT_WORKER(checkpointer_exception) {
  init_process_group(test::backend_of_tests().c_str());
  const bool on_all = test::worker_arguments()[1] == "all";
  CheckpointerOptions options{.snapshot_every_steps = 2, .format = rank_files()};
  if (!on_all) options.exception_timeout = std::chrono::milliseconds(500);
  Checkpointer checkpoints(run_folder(), options);
  const auto train = [&] {
    for (int step = 1; step <= 3; ++step)
      checkpoints.maybe_save([&] { return rank_state(10 * step + get_rank()); }, step);
    if (on_all || get_rank() == 1) throw std::out_of_range("after step 3");
  };
  try {
    checkpoints.run(train);
  } catch (const std::out_of_range&) {
    std::fputs("thrown on\n", stderr);
  }
  while (!on_all && get_rank() == 0 && !test::is_done(1)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(CheckpointerRanks, AnExceptionOnAllSavesTheLastCopy) {
  const TemporaryFolder folder;
  const auto results = run_workers("checkpointer_exception", {.arguments = {folder.file("run"), "all"}});
  results.expect_success();
  for (const auto& rank : results.ranks) EXPECT_THAT(rank.errors, testing::HasSubstr("thrown on"));
  EXPECT_THAT(results[0].errors, testing::HasSubstr("saved step 2 after an exception"));
  EXPECT_TRUE(fs::exists(folder.file("run/step-00000002/rank-1.safetensors")));
}

TEST(CheckpointerRanks, AnExceptionOnOneAloneWaitsOnlyForAWhile) {
  const TemporaryFolder folder;
  const auto results = run_workers("checkpointer_exception", {.arguments = {folder.file("run"), "one"}});
  EXPECT_THAT(results[1].errors, testing::HasSubstr("thrown on"));
  EXPECT_THAT(results[1].errors,
              testing::HasSubstr(
                  "[cohort] warning: Checkpointer: nothing was saved after an exception: all_reduce #1 on group"));
  EXPECT_THAT(results[1].errors, testing::HasSubstr("500 ms"));
  EXPECT_FALSE(fs::exists(folder.file("run")));
}

}  // namespace
}  // namespace cohort::checkpoint
