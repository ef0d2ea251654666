// Ranks that only give something small do not wait for those that take it: how far they get, what the others find, and when
// calls that do not agree are noticed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <latch>
#include <random>
#include <thread>

#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kMost = 8;  // as the note in segment.h says
constexpr Elements kOneInt{DType::kInt32, 1};
constexpr auto kHint =
    "hint: make every rank call the same operation with the same shapes, dtypes and roots, in the same order\n";

// `count` numbers that nobody else sends.
std::vector<int32_t> numbers(int rank, int step, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = rank * 100'000 + step * 1000 + static_cast<int>(i % 997);
  return values;
}

std::vector<int32_t> sum_of_all(int world_size, int step, size_t count) {
  auto sum = numbers(0, step, count);
  for (int rank = 1; rank < world_size; ++rank) {
    const auto theirs = numbers(rank, step, count);
    for (size_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  return sum;
}

// One operation with a root, checked where it has a result.
void run_rooted(Group& group, OpKind kind, int root, int step, size_t count, const CallOptions& options = {}) {
  const Elements elements{DType::kInt32, count};
  const bool is_root = group.rank() == root;
  const auto size = static_cast<size_t>(group.world_size());
  std::vector<std::vector<int32_t>> lists(size, std::vector<int32_t>(count));
  if (kind == OpKind::kScatter) {
    for (size_t peer = 0; peer < size; ++peer) lists[peer] = numbers(static_cast<int>(peer), step, count);
  }
  std::vector<void*> outs;
  for (auto& list : lists) outs.push_back(list.data());
  auto mine = numbers(group.rank(), step, count);
  switch (kind) {
    case OpKind::kBroadcast:
      ASSERT_EQ(text_of(group.broadcast(mine.data(), elements, root, options)), "success");
      ASSERT_EQ(mine, numbers(root, step, count));
      return;
    case OpKind::kReduce:
      ASSERT_EQ(text_of(group.reduce(mine.data(), mine.data(), elements, {}, root, options)), "success");
      if (is_root) {
        ASSERT_EQ(mine, sum_of_all(group.world_size(), step, count));
      }
      return;
    case OpKind::kGather:
      ASSERT_EQ(text_of(group.gather(mine.data(), is_root ? outs.data() : nullptr, elements, root, options)),
                "success");
      for (size_t peer = 0; is_root && peer < size; ++peer) {
        ASSERT_EQ(lists[peer], numbers(static_cast<int>(peer), step, count));
      }
      return;
    default:
      ASSERT_EQ(text_of(group.scatter(is_root ? outs.data() : nullptr, mine.data(), elements, root, options)),
                "success");
      ASSERT_EQ(mine, numbers(group.rank(), step, count));
  }
}

bool gives(const Group& group, OpKind kind, int root) {
  const bool root_gives = kind == OpKind::kBroadcast || kind == OpKind::kScatter;
  return (group.rank() == root) == root_gives;
}

struct Ahead {
  OpKind kind;
  size_t count;
};

class RunningAhead : public testing::TestWithParam<Ahead> {};

// Who takes does not even begin before those who give have made all their calls.
TEST_P(RunningAhead, WhoGivesDoesNotWaitForWhoTakes) {
  for (const int world_size : {2, 3}) {
    const auto [kind, count] = GetParam();
    const bool root_gives = kind == OpKind::kBroadcast || kind == OpKind::kScatter;
    std::latch all_given(root_gives ? 1 : world_size - 1);
    run_threads(world_size, [&, kind = kind, count = count](Group& group) {
      constexpr int kRoot = 1;
      if (!gives(group, kind, kRoot)) all_given.wait();
      for (int step = 0; step < kMost; ++step) run_rooted(group, kind, kRoot, step, count);
      if (gives(group, kind, kRoot)) all_given.count_down();
      ASSERT_EQ(text_of(group.barrier()), "success");
    });
  }
}

TEST(RunningAheadAmongThree, WhoTakesWaitsForNobodyButTheOneThatGives) {
  std::latch taken(1);
  run_threads(3, [&](Group& group) {
    if (group.rank() == 2) taken.wait();
    if (group.rank() == 0) std::this_thread::sleep_for(milliseconds(50));
    for (int step = 0; step < kMost; ++step) {
      run_rooted(group, OpKind::kBroadcast, 0, step, 1, {.timeout = std::chrono::seconds(20)});
    }
    if (group.rank() == 1) taken.count_down();
  });
}

TEST_P(RunningAhead, ButNoFurtherThanWhatItGivesIsKept) {
  std::atomic<bool> takes = false;
  run_threads(2, [&](Group& group) {
    const auto [kind, count] = GetParam();
    constexpr int kRoot = 0;
    if (!gives(group, kind, kRoot)) {
      std::this_thread::sleep_for(milliseconds(100));
      takes = true;
      for (int step = 0; step < 3 * kMost; ++step) run_rooted(group, kind, kRoot, step, count);
      return;
    }
    for (int step = 0; step <= kMost; ++step) run_rooted(group, kind, kRoot, step, count);
    EXPECT_TRUE(takes);
    for (int step = kMost + 1; step < 3 * kMost; ++step) run_rooted(group, kind, kRoot, step, count);
  });
}

INSTANTIATE_TEST_SUITE_P(Small, RunningAhead,
                         testing::Values(Ahead{OpKind::kBroadcast, 1}, Ahead{OpKind::kBroadcast, 512},
                                         Ahead{OpKind::kReduce, 1}, Ahead{OpKind::kReduce, 512},
                                         Ahead{OpKind::kGather, 1}, Ahead{OpKind::kGather, 512},
                                         Ahead{OpKind::kScatter, 1}, Ahead{OpKind::kScatter, 170}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.kind)) + std::to_string(info.param.count);
                         });

// Roots, sizes on both sides of each bound, operations that all wait for in between, and ranks that pause at random.
void run_mixed(Group& group, unsigned seed) {
  std::mt19937 random(seed);
  std::mt19937 own(seed + static_cast<unsigned>(group.rank()) + 1);
  constexpr OpKind kKinds[] = {OpKind::kBroadcast, OpKind::kReduce, OpKind::kGather, OpKind::kScatter};
  constexpr size_t kCounts[] = {0, 1, 6, 7, 100, 512, 513, 5000};
  for (int step = 0; step < 400; ++step) {
    const auto kind = kKinds[random() % std::size(kKinds)];
    const auto root = static_cast<int>(random() % static_cast<unsigned>(group.world_size()));
    const auto count = kCounts[random() % (random() % 4 == 0 ? std::size(kCounts) : 5)];
    const bool all_wait = random() % 8 == 0;
    if (own() % 20 == 0) std::this_thread::sleep_for(microseconds(own() % 500));
    ASSERT_NO_FATAL_FAILURE(run_rooted(group, kind, root, step, count));
    if (!all_wait) continue;
    auto values = numbers(group.rank(), step, count);
    ASSERT_EQ(text_of(group.all_reduce(values.data(), values.data(), {DType::kInt32, count}, {})), "success");
    ASSERT_EQ(values, sum_of_all(group.world_size(), step, count)) << "step " << step;
  }
}

TEST(RunningAheadAtRandom, EveryMessageArrivesWhole) {
  for (const int world_size : {2, 3, 5}) {
    run_threads(world_size, [&](Group& group) { run_mixed(group, static_cast<unsigned>(world_size)); });
  }
}

TEST(RunningAheadAtRandom, OfProcessesToo) {
  ForkedRanks ranks(3, [](Group& group) { run_mixed(group, 11); });
  ranks.expect_success();
}

// Each takes itself for the root, so nobody waits: who comes later sees the other's call.
Outcome broadcast_from_myself(Group& group) {
  int32_t value = group.rank();
  return group.broadcast(&value, kOneInt, group.rank());
}

constexpr auto kEarlier =
    "the ranks' calls differ since an earlier call, in which not every rank had to wait for the others\n";

// Of the calls of broadcast_from_myself.
std::string found_at_once() {
  return std::string(
             "rank 0 calls broadcast from rank 0 of 1 int32\n"
             "rank 1 calls broadcast from rank 1 of 1 int32\n") +
         kHint;
}
std::string found_later() { return kEarlier + found_at_once(); }

// broadcast_from_myself, of which rank 0's call comes first and so succeeds.
void broadcast_after_each_other(Group& group, std::latch& first) {
  if (group.rank() == 1) first.wait();
  const auto outcome = broadcast_from_myself(group);
  EXPECT_EQ(text_of(outcome), group.rank() == 0 ? "success" : found_at_once());
  if (group.rank() == 0) first.count_down();
}

class DifferentRoots : public testing::TestWithParam<Ahead> {};

// At least one rank fails in the call itself, whoever comes when, and nobody ends well.
TEST_P(DifferentRoots, AreFoundInTheCallAndByAll) {
  for (int step = 0; step < 20; ++step) {
    std::atomic<int> num_found = 0;
    run_threads(3, [&, kind = GetParam().kind, count = GetParam().count](Group& group) {
      const Elements elements{DType::kInt32, count};
      const int root = group.rank();
      std::vector<int32_t> values(count), out(count);
      std::vector<std::vector<int32_t>> lists(3, std::vector<int32_t>(count));
      std::vector<void*> outs;
      for (auto& list : lists) outs.push_back(list.data());
      Outcome outcome;
      if (kind == OpKind::kBroadcast) outcome = group.broadcast(values.data(), elements, root);
      if (kind == OpKind::kReduce) outcome = group.reduce(values.data(), out.data(), elements, {}, root);
      if (kind == OpKind::kGather) outcome = group.gather(values.data(), outs.data(), elements, root);
      if (kind == OpKind::kScatter) outcome = group.scatter(outs.data(), out.data(), elements, root);
      const bool is_to_root = kind == OpKind::kReduce || kind == OpKind::kGather;
      std::string table;
      for (int rank = 0; rank < 3; ++rank) {
        table += std::string("rank ") + std::to_string(rank) + " calls " + name_of(kind) +
                 (kind == OpKind::kReduce ? "(SUM)" : "") + (is_to_root ? " to rank " : " from rank ") +
                 std::to_string(rank) + " of " + std::to_string(count) + " int32\n";
      }
      if (outcome) {
        ++num_found;
        EXPECT_EQ(text_of(outcome), table + kHint);
        return;
      }
      EXPECT_EQ(text_of(group.settle()), kEarlier + table + kHint);
    });
    EXPECT_GE(num_found, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(SmallAndLarge, DifferentRoots,
                         testing::Values(Ahead{OpKind::kBroadcast, 1}, Ahead{OpKind::kBroadcast, 5000},
                                         Ahead{OpKind::kReduce, 1}, Ahead{OpKind::kReduce, 5000},
                                         Ahead{OpKind::kGather, 1}, Ahead{OpKind::kGather, 5000},
                                         Ahead{OpKind::kScatter, 1}, Ahead{OpKind::kScatter, 5000}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.kind)) + std::to_string(info.param.count);
                         });

TEST(RunningAheadMismatch, IsFoundByTheNextOperationThatWaits) {
  std::latch first(1);
  run_threads(2, [&](Group& group) {
    EXPECT_EQ(text_of(group.barrier()), "success");
    broadcast_after_each_other(group, first);
    if (group.rank() == 1) return;
    const auto outcome = group.barrier();
    EXPECT_EQ(text_of(outcome), found_later());
    EXPECT_EQ(outcome->kind, Failure::Kind::kMismatch);
    EXPECT_EQ(text_of(group.failure()), text_of(outcome));
  });
}

TEST(RunningAheadMismatch, OfTheFirstCallThatDiffersIsTold) {
  std::latch first(1);
  run_threads(2, [&](Group& group) {
    if (group.rank() == 1) {
      first.wait();
      EXPECT_EQ(text_of(broadcast_from_myself(group)), found_at_once());
      return;
    }
    EXPECT_EQ(text_of(broadcast_from_myself(group)), "success");
    int32_t values[2] = {};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of(group.broadcast(values, {DType::kInt32, 2}, 0)), "success");
    first.count_down();
    EXPECT_EQ(text_of(group.barrier()), found_later());
  });
}

// No operation follows in which all wait: a rank that runs ahead looks back in time.
TEST(RunningAheadMismatch, IsFoundByWhoOnlyGivesToo) {
  run_threads(2, [](Group& group) {
    int32_t value = 1;
    int num_calls = 0;
    Outcome outcome;
    while (!outcome && num_calls < 3 * kMost) {
      outcome = group.broadcast(&value, kOneInt, group.rank());
      ++num_calls;
    }
    ASSERT_NE(outcome, nullptr);
    EXPECT_LE(num_calls, kMost + 1);
    EXPECT_EQ(outcome->causes.back().rfind("rank 1 calls broadcast from rank 1", 0), 0u) << text_of(outcome);
  });
}

// And by the one that gives in its next call, with the same table, whether that waits or not.
TEST(RunningAheadMismatch, WithTheOneThatGivesIsFoundAtOnce) {
  std::latch given(1), found(1);
  run_threads(2, [&](Group& group) {
    std::vector<int32_t> values(3);
    const auto table = std::string(
                           "rank 0 calls broadcast from rank 0 of 2 int32\n"
                           "rank 1 calls broadcast from rank 0 of 3 int32\n") +
                       kHint;
    if (group.rank() == 1) given.wait();
    const auto outcome = group.broadcast(values.data(), {DType::kInt32, group.rank() == 0 ? 2u : 3u}, 0);
    if (group.rank() == 0) {
      EXPECT_EQ(text_of(outcome), "success");
      given.count_down();
      found.wait();
      EXPECT_EQ(text_of(group.broadcast(values.data(), kOneInt, 0)), kEarlier + table);
      return;
    }
    EXPECT_EQ(text_of(outcome), table);
    found.count_down();
  });
}

// Nothing follows at all.
TEST(RunningAheadMismatch, OfTheLastCallsIsFoundByWhoSettles) {
  std::latch first(1);
  run_threads(2, [&](Group& group) {
    EXPECT_TRUE(group.is_settled());
    EXPECT_EQ(text_of(group.settle()), "success");
    broadcast_after_each_other(group, first);
    EXPECT_FALSE(group.is_settled());
    if (group.rank() == 0) {
      EXPECT_EQ(text_of(group.settle()), found_later());
    }
  });
}

TEST(RunningAheadFailures, WhoSettlesWaitsForAll) {
  std::atomic<bool> comes = false;
  run_threads(3, [&](Group& group) {
    int32_t value = group.rank();
    if (group.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      comes = true;
    }
    EXPECT_EQ(text_of(group.reduce(&value, &value, kOneInt, {}, 0)), "success");
    EXPECT_EQ(text_of(group.settle()), "success");
    EXPECT_TRUE(comes);
    EXPECT_TRUE(group.is_settled());
  });
}

// The broadcast may take its time, though the all-reduce, which waits for it, may not.
TEST(RunningAheadFailures, AnEarlierCallHasItsOwnTime) {
  run_threads(2, [](Group& group) {
    int32_t value = 1;
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(3000));
    EXPECT_EQ(text_of(group.broadcast(&value, kOneInt, 0, {.timeout = std::chrono::seconds(60)})), "success");
    const milliseconds limit(group.rank() == 0 ? 1500 : 60'000);
    EXPECT_EQ(text_of(group.all_reduce(&value, &value, kOneInt, {}, {.timeout = limit})), "success");
  });
}

TEST(RunningAheadFailures, WhoLeavesWithoutItsLastCallIsNamed) {
  run_threads(2, [](Group& group) {
    if (group.rank() == 1) return;
    int32_t value = 1;
    EXPECT_EQ(text_of(group.broadcast(&value, kOneInt, 0)), "success");
    const auto text = text_of(group.settle());
    EXPECT_NE(text.find(" has left the group by destroying it\n"), std::string::npos) << text;
  });
}

TEST(RunningAheadFailures, WhoNeverTakesIsNamed) {
  std::latch is_over(1);
  run_threads(2, [&](Group& group) {
    if (group.rank() == 1) return is_over.wait();
    int32_t value = 1;
    Outcome outcome;
    int num_calls = 0;
    for (; !outcome && num_calls < 3 * kMost; ++num_calls) {
      outcome = group.broadcast(&value, kOneInt, 0, {.timeout = milliseconds(200)});
    }
    is_over.count_down();
    EXPECT_EQ(num_calls, kMost + 1);
    ASSERT_NE(outcome, nullptr);
    EXPECT_EQ(outcome->kind, Failure::Kind::kTimeout);
    EXPECT_NE(outcome->causes.front().find(" has not arrived within 200 ms"), std::string::npos) << text_of(outcome);
  });
}

// Rank 2 does not come either, but who takes from rank 0 does not look for it.
TEST(RunningAheadFailures, WhoDoesNotGiveIsNamedAndNobodyElse) {
  std::latch is_over(1);
  run_threads(3, [&](Group& group) {
    if (group.rank() != 1) return is_over.wait();
    int32_t value = 1;
    const auto outcome = group.broadcast(&value, kOneInt, 0, {.timeout = milliseconds(200)});
    is_over.count_down();
    ASSERT_NE(outcome, nullptr);
    EXPECT_EQ(outcome->causes.size(), 1u) << text_of(outcome);
    EXPECT_EQ(outcome->causes.front().rfind("rank 0 (pid ", 0), 0u) << text_of(outcome);
  });
}

}  // namespace
}  // namespace cohort::shm
