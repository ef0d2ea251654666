// Operations on blocks of arenas: where they lie, and where some of them cannot be mapped.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <vector>

#include "cohort/shm/arena/process_arena.h"
#include "tests/shm/checks.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

constexpr size_t kArena = size_t{64} << 20;
constexpr size_t kCount = 50000;

// Different offsets on different ranks.
float* take_floats(Group& group, size_t count) {
  for (int i = 0; i < group.rank() + 1; ++i) process_arena()->take(size_t{4096} * (1 + static_cast<size_t>(i)));
  return static_cast<float*>(process_arena()->take(count * sizeof(float)));
}

void expect_sum(Group& group, float* data, size_t count) {
  const auto size = static_cast<float>(group.world_size());
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(group.rank()) + static_cast<float>(i % 100);
  ASSERT_EQ(text_of(group.all_reduce(data, data, {DType::kFloat32, count}, {})), "success");
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(data[i], size * (size - 1) / 2 + size * static_cast<float>(i % 100)) << i;
  }
}

TEST(ArenaGroups, ProcessesReduceWhereTensorsLie) {
  ForkedRanks ranks(3,
                    [](Group& group) {
                      for (const size_t count : {kCount, size_t{16384}, kCount * 7 + 3}) {
                        expect_sum(group, take_floats(group, count), count);
                      }
                      std::vector<float> ordinary(kCount);
                      expect_sum(group, ordinary.data(), kCount);
                      expect_sum(group, group.rank() == 1 ? ordinary.data() : take_floats(group, kCount), kCount);
                    },
                    {.arena_bytes = kArena});
  ranks.expect_success();
}

// A rank whose results lie apart has others read its part, one whose results are one piece has others write them.
TEST(ArenaGroups, ResultsInOnePieceAndApartMeet) {
  ForkedRanks ranks(2,
                    [](Group& group) {
                      for (const bool is_apart_everywhere : {false, true}) {
                        auto* const in = take_floats(group, kCount);
                        for (size_t i = 0; i < kCount; ++i)
                          in[i] = static_cast<float>(i) + 0.5f * static_cast<float>(group.rank());
                        auto* const out = take_floats(group, 3 * kCount);
                        const bool is_apart = is_apart_everywhere || group.rank() == 0;
                        void* const outs[2] = {out, out + (is_apart ? 2 : 1) * kCount};
                        ASSERT_EQ(text_of(group.all_gather(in, outs, {DType::kFloat32, kCount})), "success");
                        for (int rank = 0; rank < 2; ++rank) {
                          const auto* const part = static_cast<const float*>(outs[rank]);
                          for (size_t i = 0; i < kCount; ++i) {
                            ASSERT_EQ(part[i], static_cast<float>(i) + 0.5f * static_cast<float>(rank));
                          }
                        }
                      }
                    },
                    {.arena_bytes = kArena});
  ranks.expect_success();
}

// Results that lie where others still read: not in place.
TEST(ArenaGroups, OverlapsAreStaged) {
  ForkedRanks ranks(2,
                    [](Group& group) {
                      const auto rank = static_cast<size_t>(group.rank());
                      auto* const data = take_floats(group, 2 * kCount);
                      for (size_t i = 0; i < 2 * kCount; ++i) data[i] = static_cast<float>(i + 1000000 * rank);
                      const void* const ins[2] = {data, data + kCount};
                      void* const outs[2] = {data, data + kCount};
                      const size_t counts[2] = {kCount, kCount};
                      ASSERT_EQ(text_of(group.all_to_all(ins, counts, outs, counts, DType::kFloat32)), "success");
                      for (size_t i = 0; i < 2 * kCount; ++i) {
                        const size_t from = i / kCount;
                        ASSERT_EQ(data[i], static_cast<float>(rank * kCount + i % kCount + 1000000 * from));
                      }
                    },
                    {.slot_bytes = 512 << 10, .arena_bytes = kArena});
  ranks.expect_success();
}

TEST(ArenaGroups, RanksWithoutAnArenaAreNoObstacle) {
  ForkedRanks ranks(2, [](Group& group) {
    if (group.rank() == 1) {
      ASSERT_TRUE(make_process_arena(kArena));
      expect_sum(group, take_floats(group, kCount), kCount);
      return;
    }
    std::vector<float> ordinary(kCount);
    expect_sum(group, ordinary.data(), kCount);
  });
  ranks.expect_success();
}

// Rank 1 has no address space left for the arena of rank 0. (Sanitizers take terabytes of it for themselves.)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ArenaGroups, OneThatCannotMapTheOthersIsNoObstacleMessage) {
  ForkedRanks ranks(2,
                    [](Group& group) {
                      expect_sum(group, take_floats(group, kCount), kCount);
                      if (group.rank() == 1) return;
                      auto* const data = take_floats(group, kCount);
                      EXPECT_NE(group.all_reduce(data, data, {DType::kFloat32, kCount}, {}), nullptr);
                      EXPECT_EQ(process_arena()->stats().quarantined_bytes, 0u);  // not offered
                    },
                    {.arena_bytes = size_t{1} << 36, .before_join = [](int rank) {
                       if (rank == 0) return;
                       dup2(STDOUT_FILENO, STDERR_FILENO);
                       const rlimit limit{size_t{1} << 37, size_t{1} << 37};
                       setrlimit(RLIMIT_AS, &limit);
                     }});
  EXPECT_EQ(
      ranks.output(1),
      "[cohort] warning: group \"test\" copies tensors through its own shared memory, because the memory of rank 0's "
      "tensors cannot be mapped\n"
      "  caused by: cannot map 64.0 GiB of shared memory: Cannot allocate memory (ENOMEM); this process's address "
      "space is limited to 128.0 GiB (ulimit -v)\n");
  ranks.expect_success();
}
#endif

// A process and its fork: what the child inherits of its parent's arena is a mapping of its own.
TEST(ArenaGroups, AProcessAndItsForkAreRanksOfOneGroup) {
  ForkedRanks outer(1, [](Group&) {
    ASSERT_TRUE(make_process_arena(kArena));
    const auto address = new_address();
    const auto pid = fork();
    const int rank = pid == 0 ? 1 : 0;
    ASSERT_TRUE(make_process_arena(kArena));
    auto group = Group::join(group_options(address, rank, 2, {}));
    ASSERT_TRUE(group);
    expect_sum(**group, take_floats(**group, kCount), kCount);
    if (pid == 0) _exit(testing::Test::HasFailure() ? 1 : 0);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  });
  outer.expect_success();
}

TEST(ArenaGroups, ProcessesDoEverythingWhereTensorsLie) {
  ForkedRanks ranks(
      3,
      [](Group& group) {
        constexpr size_t kBytes = 4 << 20;
        auto* const memory = static_cast<std::byte*>(process_arena()->take(kBytes));
        int turn = 0;
        for (const size_t count : {5000, 33000, 100}) {
          for (const auto kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter, OpKind::kBroadcast,
                                  OpKind::kAllGather, OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll}) {
            for (const int with_arena : {3, 1}) {
              Case test_case{.kind = kind, .count = count, .root = ++turn % 3, .salt = turn};
              test_case.in_place = turn % 2 == 0 && kind <= OpKind::kReduce;
              test_case.shared = group.rank() < with_arena ? memory : nullptr;
              test_case.shared_bytes = kBytes;
              ASSERT_EQ(text_of(run_case(group, test_case)), "success");
            }
          }
        }
      },
      {.arena_bytes = kArena});
  ranks.expect_success();
}

// Rank a sends (a + 1) * (b + 2) * scale elements to rank b, all in one piece.
void expect_exchange(Group& group, size_t scale, bool is_small_on_rank_2) {
  const auto size = static_cast<size_t>(group.world_size());
  const auto rank = static_cast<size_t>(group.rank());
  const auto sent = [&](size_t from, size_t to) {
    return (from + 1) * (to + 2) * (is_small_on_rank_2 && from == 2 ? 1 : scale);
  };
  auto* const in = take_floats(group, 64 * scale);
  auto* const out = take_floats(group, 64 * scale);
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<size_t> in_counts, out_counts;
  size_t num_in = 0, num_out = 0;
  for (size_t peer = 0; peer < size; ++peer) {
    ins.push_back(in + num_in);
    outs.push_back(out + num_out);
    in_counts.push_back(sent(rank, peer));
    out_counts.push_back(sent(peer, rank));
    for (size_t i = 0; i < sent(rank, peer); ++i)
      in[num_in++] = static_cast<float>(rank * 10 + peer) + 100.0f * (i % 9);
    num_out += sent(peer, rank);
  }
  ASSERT_EQ(text_of(group.all_to_all(ins.data(), in_counts.data(), outs.data(), out_counts.data(), DType::kFloat32)),
            "success");
  size_t place = 0;
  for (size_t peer = 0; peer < size; ++peer) {
    for (size_t i = 0; i < sent(peer, rank); ++i) {
      ASSERT_EQ(out[place++], static_cast<float>(peer * 10 + rank) + 100.0f * (i % 9));
    }
  }
}

TEST(ArenaGroups, UnevenExchangesInOnePiece) {
  ForkedRanks ranks(3,
                    [](Group& group) {
                      expect_exchange(group, 3000, false);
                      expect_exchange(group, 3000, true);  // which offers nothing, so that all stage
                      expect_exchange(group, 1, false);
                      expect_exchange(group, 5000, false);
                    },
                    {.arena_bytes = kArena});
  ranks.expect_success();
}

// Which tensors were offered shows in what is quarantined when an operation fails.
TEST(ArenaGroups, TensorsAreOfferedFromSixteenKibibytesOn) {
  ForkedRanks ranks(2,
                    [](Group& group) {
                      if (group.rank() == 1) return;
                      auto* const small = take_floats(group, 4096);
                      auto* const large = take_floats(group, 4097);
                      EXPECT_NE(group.all_reduce(small, small, {DType::kFloat32, 4096}, {}), nullptr);
                      std::cout << process_arena()->stats().quarantined_bytes << "\n";
                      EXPECT_NE(group.all_reduce(large, large, {DType::kFloat32, 4097}, {}), nullptr);
                      std::cout << process_arena()->stats().quarantined_bytes << "\n";
                    },
                    {.arena_bytes = kArena});
  EXPECT_EQ(ranks.output(0), "0\n0\n");  // the second is refused before it offers anything
  ForkedRanks large_ones(2,
                         [](Group& group) {
                           if (group.rank() == 1) return;
                           auto* const large = take_floats(group, 4097);
                           EXPECT_NE(group.all_reduce(large, large, {DType::kFloat32, 4097}, {}), nullptr);
                           std::cout << process_arena()->stats().quarantined_bytes << "\n";
                         },
                         {.arena_bytes = kArena});
  EXPECT_EQ(large_ones.output(0), "20480\n");
}

}  // namespace
}  // namespace cohort::shm
