// Every collective, ranks as threads, with slots so small that little data takes many rounds.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <set>
#include <vector>

#include "cohort/shm/arena/process_arena.h"
#include "tests/shm/checks.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

constexpr OpKind kReducing[] = {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter};
constexpr OpKind kMoving[] = {OpKind::kBroadcast, OpKind::kAllGather, OpKind::kGather, OpKind::kScatter,
                              OpKind::kAllToAll};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kInt64, DType::kUInt8};

std::set<size_t> counts_for(int world_size) {
  const auto size = static_cast<size_t>(world_size);
  // Inline limits, direct limits, slots of 4 KiB and their multiples, and neighbors of all these.
  return {0, 1, size - 1, size, size + 1, 3, 6, 7, 13, 24, 25, 1000, 1024, 1025, 4096, 8193, 33000};
}

void run_all(Group& group, std::byte* shared, size_t shared_bytes) {
  int turn = 0;
  for (const auto count : counts_for(group.world_size())) {
    for (const auto dtype : kDTypes) {
      Case test_case{.dtype = dtype, .count = count, .shared = shared, .shared_bytes = shared_bytes};
      for (const auto kind : kReducing) {
        for (const auto op : {ReduceOp::kSum, ReduceOp::kMax}) {
          test_case.kind = kind;
          test_case.op = op;
          test_case.salt = ++turn;
          test_case.root = turn % group.world_size();
          test_case.in_place = turn % 2 == 0;
          ASSERT_EQ(text_of(run_case(group, test_case)), "success");
        }
      }
      for (const auto kind : kMoving) {
        test_case.kind = kind;
        test_case.salt = ++turn;
        test_case.root = turn % group.world_size();
        test_case.in_place = false;
        ASSERT_EQ(text_of(run_case(group, test_case)), "success");
      }
    }
  }
  ASSERT_EQ(text_of(group.barrier()), "success");
}

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(Collectives, AreRightForEverySizeWithTinySlots) {
  run_threads(GetParam(), [](Group& group) { run_all(group, nullptr, 0); }, {.slot_bytes = 4096});
}

TEST_P(Collectives, AreRightOnSharedTensors) {
  run_threads(GetParam(),
              [](Group& group) {
                constexpr size_t kBytes = 2 << 20;
                void* memory = nullptr;
                ASSERT_EQ(text_of(group.allocate(kBytes, &memory)), "success");
                run_all(group, static_cast<std::byte*>(memory), kBytes);
                Group::release(memory);
              },
              {.slot_bytes = 4096});
}

TEST_P(Collectives, AreRightOnTensorsInArenas) {
  run_threads(GetParam(),
              [](Group& group) {
                constexpr size_t kBytes = 2 << 20;
                auto* const memory = process_arena()->take(kBytes);
                run_all(group, static_cast<std::byte*>(memory), kBytes);
                ASSERT_EQ(text_of(group.barrier()), "success");
                run_all(group, group.rank() == 0 ? static_cast<std::byte*>(memory) : nullptr, kBytes);
                process_arena()->release(memory);
              },
              {.slot_bytes = 4096, .arena_bytes = 64 << 20});
}

TEST_P(Collectives, AreRightWhereOnlySomeTensorsAreShared) {
  run_threads(GetParam(),
              [](Group& group) {
                constexpr size_t kBytes = 2 << 20;
                void* memory = nullptr;
                ASSERT_EQ(text_of(group.allocate(kBytes, &memory)), "success");
                run_all(group, group.rank() == 0 ? static_cast<std::byte*>(memory) : nullptr, kBytes);
                Group::release(memory);
              },
              {.slot_bytes = 4096});
}

// Sums whose value depends on the order of the terms.
std::vector<float> awkward(int rank, size_t count) {
  std::vector<float> numbers(count);
  uint32_t state = 12345u + static_cast<uint32_t>(rank) * 999u;
  for (auto& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<float>(static_cast<int32_t>(state)) * (state % 7 == 0 ? 1e-6f : 1.0f);
  }
  return numbers;
}

TEST(Determinism, SumsGoInRankOrderHoweverTheMessageIsCut) {
  for (const int world_size : {2, 3, 5}) {
    for (const size_t slot_bytes : {4096, 20480, 1 << 20}) {
      for (const size_t count : {5, 1000, 70001}) {
        std::vector<float> expected = awkward(0, count);
        for (int rank = 1; rank < world_size; ++rank) {
          const auto theirs = awkward(rank, count);
          for (size_t i = 0; i < count; ++i) expected[i] += theirs[i];
        }
        run_threads(
            world_size,
            [&](Group& group) {
              auto mine = awkward(group.rank(), count);
              ASSERT_EQ(text_of(group.all_reduce(mine.data(), mine.data(), {DType::kFloat32, count}, {})), "success");
              EXPECT_EQ(std::memcmp(mine.data(), expected.data(), count * sizeof(float)), 0)
                  << world_size << " ranks, slots of " << slot_bytes << ", " << count << " elements";
            },
            {.slot_bytes = slot_bytes});
      }
    }
  }
}

TEST(Determinism, AveragesAsPyTorchsDataParallelDoes) {
  for (const int world_size : {2, 3}) {
    for (const size_t count : {3, 1000, 30000}) {
      run_threads(world_size, [&](Group& group) {
        const float factor = 1.0f / static_cast<float>(world_size);
        std::vector<float> expected(count);
        for (int rank = 0; rank < world_size; ++rank) {
          const auto theirs = awkward(rank, count);
          for (size_t i = 0; i < count; ++i) {
            const volatile float scaled = theirs[i] * factor;  // rounded before it is added
            expected[i] = rank == 0 ? scaled : expected[i] + scaled;
          }
        }
        auto mine = awkward(group.rank(), count);
        const Reduction average{ReduceOp::kAvg};
        ASSERT_EQ(text_of(group.all_reduce(mine.data(), mine.data(), {DType::kFloat32, count}, average)), "success");
        EXPECT_EQ(std::memcmp(mine.data(), expected.data(), count * sizeof(float)), 0);
      });
    }
  }
}

TEST(Collectives, EveryRankHasItsOwnFactor) {
  run_threads(3, [](Group& group) {
    for (const size_t count : {2, 5000}) {
      std::vector<double> ones(count, 1.0);
      const Reduction reduction{ReduceOp::kPremulSum, 1.0 + group.rank()};
      ASSERT_EQ(text_of(group.all_reduce(ones.data(), ones.data(), {DType::kFloat64, count}, reduction)), "success");
      EXPECT_EQ(ones, std::vector<double>(count, 6.0));
    }
  });
}

// Where some tensors are shared and others not, there is a round more.
TEST(Collectives, EveryRankHasItsOwnFactorWhereverTensorsLie) {
  run_threads(
      3,
      [](Group& group) {
        constexpr size_t kCount = 3000, kTotal = 3 * kCount;
        void* region = nullptr;
        ASSERT_EQ(text_of(group.allocate(kTotal * sizeof(double), &region)), "success");
        auto* const block = process_arena()->take(kTotal * sizeof(double));
        std::vector<double> ordinary(kTotal);
        for (int turn = 0; turn < 27; ++turn) {  // each of the three memories on each rank
          const int choice = turn / (group.rank() == 0 ? 1 : group.rank() == 1 ? 3 : 9) % 3;
          void* const memories[3] = {ordinary.data(), region, block};
          auto* const data = static_cast<double*>(memories[choice]);
          const Reduction reduction{ReduceOp::kPremulSum, 1.0 + group.rank() + turn};
          const double sum = 6.0 + 3 * turn;
          std::fill_n(data, kTotal, 1.0);
          ASSERT_EQ(text_of(group.all_reduce(data, data, {DType::kFloat64, kTotal}, reduction)), "success");
          for (size_t i = 0; i < kTotal; ++i) ASSERT_EQ(data[i], sum);
          std::fill_n(data, kTotal, 2.0);
          ASSERT_EQ(text_of(group.reduce(data, data, {DType::kFloat64, kTotal}, reduction, 1)), "success");
          for (size_t i = 0; group.rank() == 1 && i < kTotal; ++i) ASSERT_EQ(data[i], 2 * sum);
          std::fill_n(data, kTotal, 3.0);
          const void* const ins[3] = {data, data + kCount, data + 2 * kCount};
          std::vector<double> out(kCount);
          ASSERT_EQ(text_of(group.reduce_scatter(ins, out.data(), {DType::kFloat64, kCount}, reduction)), "success");
          ASSERT_EQ(out, std::vector<double>(kCount, 3 * sum));
        }
        Group::release(region);
        process_arena()->release(block);
      },
      {.arena_bytes = 64 << 20});
}

TEST(Collectives, WrongArgumentsLeaveTheGroupUsable) {
  run_threads(2, [](Group& group) {
    float one = 1;
    EXPECT_EQ(text_of(group.all_reduce(&one, &one, {DType::kFloat32, 1}, {ReduceOp::kBand})),
              "float32 cannot be reduced with BAND\n");
    EXPECT_EQ(text_of(group.broadcast(&one, {DType::kFloat32, 1}, 2)),
              "root 2 is out of range. Valid ranks are 0 to 1\n");
    EXPECT_EQ(text_of(group.barrier()), "success");
  });
}

TEST(Collectives, MeetSoonTellsWhoHasCome) {
  using std::chrono::microseconds;
  constexpr auto kLong = std::chrono::seconds(60);
  std::latch rank_0_has_said_so(2), rank_0_has_looked(2);
  run_threads(2, [&](Group& group) {
    const bool is_first = group.rank() == 0;
    if (is_first) {
      EXPECT_FALSE(group.meet_soon(microseconds(100)));
    }
    rank_0_has_said_so.arrive_and_wait();
    // What rank 0 has said stands: its operation is coming.
    if (!is_first) {
      EXPECT_TRUE(group.meet_soon(microseconds(0)));
    }
    EXPECT_EQ(text_of(group.barrier()), "success");
    // It stood for one operation.
    if (is_first) {
      EXPECT_FALSE(group.meet_soon(microseconds(0)));
    }
    rank_0_has_looked.arrive_and_wait();
    // Who is in the operation has come.
    if (is_first) {
      EXPECT_TRUE(group.meet_soon(kLong));
    }
    EXPECT_EQ(text_of(group.barrier()), "success");
    // Both at once.
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(group.meet_soon(kLong));
      float value = 1;
      EXPECT_EQ(text_of(group.all_reduce(&value, &value, {DType::kFloat32, 1}, {ReduceOp::kSum})), "success");
      EXPECT_EQ(value, 2);
    }
  });
}

TEST(Allocate, PartsAreZeroedAndSeenByAllAndCounted) {
  const auto before = Group::num_allocated_bytes();
  run_threads(3, [&](Group& group) {
    void* memory = nullptr;
    ASSERT_EQ(text_of(group.allocate(5000, &memory)), "success");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(static_cast<char*>(memory)[i], 0);
    ASSERT_EQ(text_of(group.barrier()), "success");
    EXPECT_EQ(Group::num_allocated_bytes() - before, 3u * 8192u);
    ASSERT_EQ(text_of(group.barrier()), "success");
    Group::release(memory);
  });
  EXPECT_EQ(Group::num_allocated_bytes(), before);
}

TEST(Allocate, MemoryOutlivesItsGroup) {
  std::vector<void*> memories(2);
  run_threads(2, [&](Group& group) {
    ASSERT_EQ(text_of(group.allocate(100, &memories[static_cast<size_t>(group.rank())])), "success");
  });
  for (auto* const memory : memories) {
    std::memset(memory, 7, 100);
    Group::release(memory);
  }
}

}  // namespace
}  // namespace cohort::shm
