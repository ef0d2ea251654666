// Memory snapshots in one process: what is laid out where, how it comes back, and what is said when it cannot. Ranks and
// restarts: tests/e2e/checkpoint/recovery_test.py.
#include "cohort/checkpoint/recovery/memory_snapshot.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "cohort/base/system/env.h"
#include "cohort/checkpoint/checkpointer/stop_signals.h"
#include "cohort/checkpoint/recovery/skip_init.h"
#include "cohort/checkpoint/recovery/snapshot_layout.h"
#include "cohort/store/tcp/tcp_client.h"
#include "tests/checkpoint/job_of_one.h"

namespace cohort::checkpoint {
namespace {

using detail::SnapshotPieces;

ShardedStateDict some_state() {
  ShardedStateDict state;
  state.insert("large", StateValue(at::arange(40000, at::kFloat).view({200, 200})));
  state.insert("small", StateValue(at::arange(5, at::kDouble)));
  state.insert("turned", StateValue(at::arange(60000, at::kInt).view({300, 200}).t()));
  state.insert("empty", StateValue(at::zeros({0, 3})));
  state.insert("number", StateValue(c10::IValue(int64_t{7})));
  state.insert("text", StateValue(c10::IValue("seven")));
  return state;
}

struct Bytes {
  explicit Bytes(const detail::SnapshotLayout& layout) : own(layout.num_own_bytes), shared(layout.shared_total) {}
  std::vector<std::byte> own;
  std::vector<std::byte> shared;
};

void expect_same(const ShardedStateDict& a, const ShardedStateDict& b) {
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) {
    if (item.value().is_tensor()) {
      EXPECT_TRUE(item.value().tensor.equal(b[item.key()].tensor)) << item.key();
      EXPECT_EQ(item.value().tensor.scalar_type(), b[item.key()].tensor.scalar_type());
    } else {
      EXPECT_EQ(item.value().value, b[item.key()].value) << item.key();
    }
  }
}

TEST(SnapshotLayout, ComesBackFromAnyNumberOfShares) {
  const ShardedStateDict state = some_state();
  const auto layout = detail::plan_snapshot(state, /*shares=*/true);
  EXPECT_EQ(layout.shared_total, 400000u);
  EXPECT_TRUE(layout.is_full);
  for (const uint64_t share : {uint64_t{400000}, uint64_t{100032}, uint64_t{64064}}) {
    Bytes bytes(layout);
    std::vector<detail::SnapshotShare> shares;
    for (uint64_t begin = 0; begin < layout.shared_total; begin += share) {
      const std::span<std::byte> part =
          std::span(bytes.shared).subspan(begin, std::min(share, layout.shared_total - begin));
      copy_snapshot(layout, {bytes.own, part, begin}, SnapshotPieces::kAll, begin % 128 == 0);
      shares.push_back({begin, part});
    }
    expect_same(detail::read_snapshot(layout.meta, bytes.own, shares), state);
  }
}

TEST(SnapshotLayout, WithoutSharesAllIsOwn) {
  const auto layout = detail::plan_snapshot(some_state(), /*shares=*/false);
  EXPECT_EQ(layout.shared_total, 0u);
  EXPECT_EQ(layout.shared_layout, 0u);
  Bytes bytes(layout);
  copy_snapshot(layout, {bytes.own, {}, 0}, SnapshotPieces::kSmall, false);
  copy_snapshot(layout, {bytes.own, {}, 0}, SnapshotPieces::kLarge, false);
  expect_same(detail::read_snapshot(layout.meta, bytes.own, {}), some_state());
}

TEST(SnapshotLayout, WhatIsOnSomeRanksAloneIsNotShared) {
  ShardedStateDict state;
  state.insert("weight", StateValue(at::arange(40000, at::kFloat)));
  state.insert("average", StateValue(at::arange(40000, at::kFloat) * 2));
  const auto layout = detail::plan_snapshot(state, true, [](const std::string& key) { return key == "average"; });
  EXPECT_EQ(layout.shared_total, 160000u);
  EXPECT_EQ(layout.num_own_bytes, 160000u);
  EXPECT_FALSE(layout.is_full) << "another number of ranks would lack some";
  state.erase("average");
  EXPECT_EQ(layout.shared_layout, detail::plan_snapshot(state, true).shared_layout)
      << "the owner's is equal to others'";
  Bytes bytes(layout);
  copy_snapshot(layout, {bytes.own, bytes.shared, 0}, SnapshotPieces::kAll, false);
  const ShardedStateDict kept = detail::read_snapshot(layout.meta, bytes.own, {{0, bytes.shared}});
  EXPECT_TRUE(kept["average"].tensor.equal(at::arange(40000, at::kFloat) * 2));
}

TEST(SnapshotLayout, BytesThatAreMissingAreNoticed) {
  const auto layout = detail::plan_snapshot(some_state(), /*shares=*/true);
  Bytes bytes(layout);
  copy_snapshot(layout, {bytes.own, bytes.shared, 0}, SnapshotPieces::kAll, false);
  const auto text_of = [&](std::span<const std::byte> own, const std::vector<detail::SnapshotShare>& shares) {
    try {
      detail::read_snapshot(layout.meta, own, shares);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  const char* const text = "[cohort] resume: a snapshot's bytes are not all there";
  EXPECT_EQ(text_of(bytes.own, {{0, std::span(bytes.shared).first(399999)}}), text);
  EXPECT_EQ(text_of(std::span(bytes.own).first(10), {{0, bytes.shared}}), text);
  EXPECT_EQ(text_of(bytes.own, {{0, bytes.shared}}), "");
}

TEST(SnapshotLayout, LayoutsDifferWithNamesAndShapes) {
  const auto layout_of = [](const char* name, at::IntArrayRef sizes) {
    ShardedStateDict state;
    state.insert(name, StateValue(at::zeros(sizes)));
    return detail::plan_snapshot(state, true).shared_layout;
  };
  EXPECT_NE(layout_of("a", {200, 100}), layout_of("b", {200, 100}));
  EXPECT_NE(layout_of("a", {200, 100}), layout_of("a", {100, 200}));
}

TEST(SnapshotLayout, SparseTensorsAreRefused) {
  ShardedStateDict state;
  state.insert("sparse", StateValue(at::zeros({3, 3}).to_sparse()));
  EXPECT_THROW(detail::plan_snapshot(state, true), c10::ValueError);
}

TEST(SkipInit, LeavesOutRandomNumbersAndNothingElse) {
  torch::manual_seed(1);
  const at::Tensor expected = at::full({3}, 2.0).normal_();
  torch::manual_seed(1);
  {
    const SkipInit skip;
    torch::nn::Linear layer(300, 300);
    EXPECT_EQ(layer->weight.size(1), 300);
    EXPECT_TRUE(at::full({3}, 5.0).normal_().equal(at::full({3}, 5.0)));
    EXPECT_TRUE(at::full({3}, 5.0).uniform_().equal(at::full({3}, 5.0)));
    EXPECT_TRUE((at::full({3}, 5.0) + 1).equal(at::full({3}, 6.0)));
  }
  EXPECT_TRUE(at::full({3}, 2.0).normal_().equal(expected)) << "nothing was drawn meanwhile";
}

TEST(SkipInit, ARestartIsOneThatFollowedAFailure) {
  EXPECT_FALSE(is_restart());
  base::set_env("TORCHELASTIC_RESTART_COUNT", "0");
  EXPECT_FALSE(is_restart());
  base::set_env("TORCHELASTIC_RESTART_COUNT", "2");
  EXPECT_TRUE(is_restart());
  base::unset_env("TORCHELASTIC_RESTART_COUNT");
}

class MemorySnapshotTest : public testing::Test {
 protected:
  SnapshotState state() {
    return {.get = [this] {
      ShardedStateDict values;
      values.insert("weight", StateValue(weight_));
      return values;
    }};
  }
  at::Tensor weight_ = at::zeros({200, 200});
  JobOfOne job_;
};

TEST_F(MemorySnapshotTest, ComesBackInPlace) {
  {
    MemorySnapshot snapshot(state(), {.every_steps = 2});
    EXPECT_EQ(snapshot.resume().describe(), "from the start");
    for (int64_t step = 1; step <= 5; ++step) {
      weight_.fill_(step);
      snapshot.step(step);
    }
  }
  weight_.zero_();
  MemorySnapshot snapshot(state());
  const Resumed resumed = snapshot.resume();
  EXPECT_EQ(resumed.describe(), "step 4 from memory");
  EXPECT_TRUE(resumed.is_exact);
  EXPECT_TRUE(weight_.equal(at::full({200, 200}, 4.0)));
}

TEST_F(MemorySnapshotTest, TheNewerOfMemoryAndDiskCounts) {
  {
    MemorySnapshot snapshot(state());
    snapshot.resume();
    snapshot.step(1);
  }
  const auto from_disk = [] { return std::optional<int64_t>(3); };
  {
    MemorySnapshot snapshot(state());
    EXPECT_EQ(snapshot.resume(from_disk, 3).describe(),
              "step 3 from disk (not from memory: its newest state is of step 1)");
  }
  MemorySnapshot snapshot(state());
  EXPECT_EQ(snapshot.resume(from_disk).describe(), "step 3 from disk") << "what was older is forgotten";
}

TEST_F(MemorySnapshotTest, ATensorThatChangesInTheCopyIsAnError) {
  MemorySnapshot snapshot(state(), {.overlap = true});
  snapshot.resume();
  snapshot.step(1);
  snapshot.before_step();
  snapshot.step(2);
  weight_.add_(1);
  try {
    snapshot.before_step();
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(
        std::string(error.what_without_backtrace()),
        "[cohort] MemorySnapshot: a tensor was changed while it was copied\n  hint: with .overlap, call before_step() "
        "before optimizer->step(), and before whatever else changes what is kept");
  }
  EXPECT_EQ(snapshot.complete_step(), 1);
}

TEST_F(MemorySnapshotTest, ALauncherThatIsGoneIsSaidOrThrown) {
  job_.lose_launcher();
  MemorySnapshot snapshot(state());
  EXPECT_EQ(snapshot.resume().describe(), "from the start");
  EXPECT_FALSE(snapshot.is_on());
  snapshot.step(1);
  MemorySnapshot required(state(), {.required = true});
  EXPECT_THROW(required.resume(), c10::Error);
}

// As under a launcher that is told to stop, while another rank comes no more: before, this one waited for 30 days.
TEST_F(MemorySnapshotTest, AStopSignalEndsTheWaitForOtherRanks) {
  base::set_env("WORLD_SIZE", "2");
  base::set_env("LOCAL_WORLD_SIZE", "2");
  const StopSignals signals({SIGTERM});
  // The other rank: it goes on from nothing, and has no snapshot of step 1.
  std::thread other([port = std::stoi(*base::get_env("MASTER_PORT"))] {
    const auto store = store::TcpClient::connect({.port = port}).value();
    const auto wait_for_end = [&](const std::string& end) {
      while (true) {
        const auto keys = store->list_keys().value();
        for (const std::string& key : keys) {
          if (key.ends_with(end)) return key;
        }
        std::this_thread::yield();
      }
    };
    EXPECT_TRUE(store->add(wait_for_end("/settled/num_members"), 1));
    wait_for_end("/0/waiting");
    ::kill(getpid(), SIGTERM);
  });
  MemorySnapshot snapshot(state());
  snapshot.resume();
  snapshot.step(1);
  testing::internal::CaptureStderr();
  snapshot.step(2);
  other.join();
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr("training goes on without memory snapshots: rank 0 no longer waits for the other ranks "
                         "to finish a memory snapshot (1 of 2 have): this process has been told to end by "
                         "SIGTERM\n"));
  EXPECT_FALSE(snapshot.is_on());
}

TEST_F(MemorySnapshotTest, IsUsedInOrder) {
  MemorySnapshot snapshot(state());
  EXPECT_THROW(snapshot.step(1), c10::Error);
  snapshot.resume();
  EXPECT_THROW(snapshot.resume(), c10::Error);
  EXPECT_THROW(MemorySnapshot(state(), {.every_steps = 0}), c10::ValueError);
  EXPECT_THROW(MemorySnapshot(SnapshotState{}), c10::ValueError);
}

}  // namespace
}  // namespace cohort::checkpoint
