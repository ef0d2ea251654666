// Sharded checkpoints on several ranks, which are processes.
#include <ATen/Functions.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cohort/checkpoint/sharded/async_save.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "tests/checkpoint/sharded_layouts.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::error_of;
using test::laid_out;
using test::layouts_for;
using test::run_workers;
using test::TemporaryFolder;
using test::worker_arguments;

std::string folder_of_ranks(const std::string& name) { return worker_arguments().at(0) + "/" + name; }

// Fills a state of another layout from the checkpoint: the same elements, and no byte more than they are.
void expect_loads_as(const std::string& layout, const std::string& folder) {
  const ShardedStateDict expected = laid_out(layout);
  ShardedStateDict state = laid_out(layout);
  for (auto& item : state) item.value().tensor.fill_(-1);
  const LoadReport report = load_sharded(state, folder);
  for (const auto& item : expected) {
    const auto& loaded = state[item.key()].tensor;
    if (!at::equal(loaded, item.value().tensor)) {
      throw std::runtime_error(layout + " from " + folder + ": " + item.key() + " differs");
    }
  }
  REQUIRE(report.bytes_read == bytes_of(expected));
}

COHORT_WORKER(sharded_saves_layouts) {
  init_process_group("gloo");
  for (const std::string& layout : layouts_for(get_world_size())) {
    save_sharded(laid_out(layout), folder_of_ranks(layout), {.sync_files = false, .num_files = 3});
    for (const std::string& other : layouts_for(get_world_size())) expect_loads_as(other, folder_of_ranks(layout));
  }
}

COHORT_WORKER(sharded_loads_layouts) {
  init_process_group("gloo");
  for (const std::string& layout : layouts_for(get_world_size())) {
    for (const std::string& saved : layouts_for(4)) expect_loads_as(layout, folder_of_ranks(saved));
  }
}

TEST(ShardedRanks, EveryLayoutFromEveryOther) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments{folder.file("run")};
  run_workers("sharded_saves_layouts", {.world_size = 4, .arguments = arguments}).expect_success();
  for (const std::string& layout : layouts_for(4)) {
    const auto report = files::verify_sharded(folder.file("run/" + layout));
    ASSERT_TRUE(report.ok()) << report.error().describe();
    EXPECT_EQ(report->num_checked_bytes, report->num_bytes);
    EXPECT_EQ(report->num_tensors, test::shapes_of_state().size());
  }
  for (const int world_size : {1, 2, 3}) {
    run_workers("sharded_loads_layouts", {.world_size = world_size, .arguments = arguments}).expect_success();
  }
}

COHORT_WORKER(sharded_one_fails) {
  init_process_group("gloo");
  const std::string folder = folder_of_ranks("run");
  ShardedStateDict state = laid_out("fsdp");
  save_sharded(state, folder);
  // A tensor that cannot be stored, on one rank only.
  ShardedStateDict sparse = laid_out("pp");
  if (get_rank() == 1) sparse.insert("sparse", at::ones({2, 2}).to_sparse());
  const std::string text = "[cohort] save_sharded: cannot save \"" + folder +
                           "\"\n  rank 1: tensor \"sparse\" is sparse; call to_dense() first";
  REQUIRE_EQUAL(error_of([&] { save_sharded(sparse, folder); }), text);
  try {
    save_sharded(sparse, folder);
  } catch (const CheckpointException& error) {
    REQUIRE(error.failures().size() == 1 && error.failures().contains(1));
  }
  // Disagreement, and parts that are left out.
  ShardedStateDict other;
  other.insert("w", at::ones({2 + get_rank()}));
  REQUIRE_EQUAL(
      error_of([&] { save_sharded(other, folder); }),
      "[cohort] save_sharded: cannot save \"" + folder +
          "\"\n  rank 0: key \"w\" is float32 [2] on rank 0, but float32 [3] on rank 1\n"
          "    hint: use different keys for tensors that differ between ranks, such as keys with the rank in them");
  // Loading: what one rank misses, all hear, and nothing has changed.
  ShardedStateDict wanted = laid_out("fsdp");
  wanted["layer.0.weight"].tensor.fill_(-1);
  if (get_rank() == 1) wanted.insert("layer.9.weight", at::ones({2}));
  REQUIRE_EQUAL(error_of([&] { load_sharded(wanted, folder); }),
                "[cohort] load_sharded: cannot load \"" + folder +
                    "\"\n  rank 1: Missing key in checkpoint state_dict: layer.9.weight.\n"
                    "    hint: did you mean \"layer.0.weight\"?\n"
                    "    hint: set allow_partial_load to keep what the checkpoint does not have");
  REQUIRE(wanted["layer.0.weight"].tensor.eq(-1).all().item<bool>());
  const LoadReport report = load_sharded(wanted, folder, {.allow_partial_load = true});
  REQUIRE(report.missing_keys.size() == static_cast<size_t>(get_rank()));
  REQUIRE(at::equal(wanted["layer.0.weight"].tensor, state["layer.0.weight"].tensor));
  expect_loads_as("fsdp", folder);
}

TEST(ShardedRanks, WhatOneCannotDoIsAnErrorOnAll) {
  const TemporaryFolder folder;
  run_workers("sharded_one_fails", {.arguments = {folder.file("")}}).expect_success();
  EXPECT_TRUE(files::verify_sharded(folder.file("run")).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()), 2);
}

// A rank whose file has vanished: the others hear of it, and the checkpoint that was there is whole.
COHORT_WORKER(sharded_file_vanishes) {
  init_process_group("gloo");
  const std::string folder = folder_of_ranks("run");
  save_sharded(laid_out("tp"), folder);
  AsyncSave save = async_save(laid_out("tp"), folder);
  save.wait();
  // The other rank sees another folder under the same path.
  const std::string own = get_rank() == 1 ? folder_of_ranks("elsewhere") : folder;
  const std::string text = error_of([&] { save_sharded(laid_out("tp"), own, {.num_files = 1}); });
  REQUIRE_EQUAL(text, "[cohort] save_sharded: cannot save \"" + own + "\"\n  rank 1: cannot open \"" +
                          folder_of_ranks("elsewhere") +
                          "/model-00001-of-00001.safetensors.unfinished\": No such file or directory (ENOENT)\n"
                          "    hint: save to a folder that the hosts of all ranks share");
  barrier();
  expect_loads_as("fsdp", folder);
}

TEST(ShardedRanks, AFolderThatIsNotShared) {
  const TemporaryFolder folder;
  run_workers("sharded_file_vanishes", {.arguments = {folder.file("")}}).expect_success();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("run")), fs::directory_iterator()), 2);
}

COHORT_WORKER(sharded_async) {
  init_process_group("gloo");
  const std::string folder = folder_of_ranks("run");
  ShardedStateDict state = laid_out("fsdp");
  for (int round = 0; round < 3; ++round) {
    AsyncSave save = async_save(state, folder + std::to_string(round));
    // Training goes on: the tensors change, and the group is used.
    for (auto& item : state) item.value().tensor.zero_();
    at::Tensor ones = at::ones({1});
    for (int i = 0; i < 20; ++i) all_reduce(ones);
    save.wait();
    REQUIRE(save.done());
    REQUIRE(save.staging_time().count() > 0);
    expect_loads_as("ddp", folder + std::to_string(round));
    state = laid_out("fsdp");
  }
  // The second waits for the first.
  async_save(state, folder + "3");
  async_save(state, folder + "4").wait();
  expect_loads_as("tp", folder + "3");
  expect_loads_as("tp", folder + "4");
  // One that fails says so when it is waited for, on all ranks.
  if (get_rank() == 1) state.insert("meta", at::empty({2}, at::kMeta));
  REQUIRE_EQUAL(error_of([&] { async_save(state, folder + "5"); }),
                "[cohort] async_save: cannot save \"" + folder +
                    "5\"\n  rank 1: tensor \"meta\" is on the meta device and has no data");
  // Its end is the process's: nothing is lost.
  async_save(laid_out("fsdp"), folder + "6");
}

TEST(ShardedRanks, AsyncSavesWhatWasThere) {
  const TemporaryFolder folder;
  run_workers("sharded_async", {.arguments = {folder.file("")}}).expect_success();
  EXPECT_TRUE(files::verify_sharded(folder.file("run6")).ok());
}

// While one is in flight: its first file cannot be opened before the test lets it.
COHORT_WORKER(sharded_async_refused) {
  init_process_group("gloo");
  const std::string folder = folder_of_ranks("run");
  ShardedStateDict state;
  state.insert("large", at::ones({64 << 20}));
  AsyncSave first = async_save(state, folder);
  const std::string text = error_of([&] { async_save(state, folder + "2", {{}, false}); });
  REQUIRE(text.find("[cohort] async_save: cannot save \"" + folder + "2\"\n  rank ") == 0);
  REQUIRE(text.find(": the save of \"" + folder +
                    "\" has not ended yet\n    hint: save less often, or let wait_for_previous make training wait") !=
          std::string::npos);
  first.wait();
  REQUIRE(!fs::exists(folder + "2"));
}

TEST(ShardedRanks, ASecondAsyncSaveIsRefusedByOption) {
  const TemporaryFolder folder;
  run_workers("sharded_async_refused", {.arguments = {folder.file("")}}).expect_success();
}

}  // namespace
}  // namespace cohort::checkpoint
