// Random operations with every result checked, and ranks that are killed, stopped and delayed at random moments.
// COHORT_STRESS_RUNS=n: so many runs instead of the few of a normal test.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "cohort/base/system/env.h"
#include "tests/shm/checks.h"
#include "tests/shm/ranks.h"
#include "tests/shm/stress_seed.h"

namespace cohort::shm {
namespace {

using Random = std::mt19937;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// The thread sanitizer makes a run ten times as long, and sees a race that happens once in half as many.
#ifdef __SANITIZE_THREAD__
constexpr int kShareOfRuns = 2;
#else
constexpr int kShareOfRuns = 1;
#endif

int num_runs(int usual) {
  return static_cast<int>(base::env_int("COHORT_STRESS_RUNS", 1).value().value_or(usual / kShareOfRuns));
}

unsigned pick(Random& random, unsigned below) { return static_cast<unsigned>(random() % below); }

// The same on every rank that draws from the same numbers.
Case random_case(Random& random, int world_size) {
  constexpr OpKind kKinds[] = {OpKind::kBarrier, OpKind::kAllReduce,     OpKind::kBroadcast,
                               OpKind::kReduce,  OpKind::kAllGather,     OpKind::kGather,
                               OpKind::kScatter, OpKind::kReduceScatter, OpKind::kAllToAll};
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kInt64, DType::kUInt8};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
  constexpr unsigned kLargest[] = {8, 100, 3000, 40000};
  Case test_case;
  test_case.kind = kKinds[pick(random, std::size(kKinds))];
  test_case.dtype = kDTypes[pick(random, std::size(kDTypes))];
  test_case.op = kOps[pick(random, std::size(kOps))];
  test_case.count = pick(random, kLargest[pick(random, std::size(kLargest))]);
  test_case.root = static_cast<int>(pick(random, static_cast<unsigned>(world_size)));
  test_case.salt = static_cast<int>(pick(random, 1000));
  test_case.in_place = pick(random, 2) == 0 && test_case.kind != OpKind::kAllGather &&
                       test_case.kind != OpKind::kGather && test_case.kind != OpKind::kScatter &&
                       test_case.kind != OpKind::kAllToAll && test_case.kind != OpKind::kReduceScatter;
  return test_case;
}

// One rank: several groups of the same ranks, shared tensors in some, operations in an order known to all.
void run_random_operations(const std::vector<std::unique_ptr<Group>>& groups, unsigned seed, int num_operations) {
  Random random(seed);
  Random own_random(seed + static_cast<unsigned>(groups.front()->rank()));
  constexpr size_t kSharedBytes = 1 << 20;
  std::vector<void*> memories;
  for (const auto& group : groups) {
    memories.push_back(nullptr);
    if (pick(random, 2) == 0) continue;
    ASSERT_EQ(text_of(group->allocate(kSharedBytes, &memories.back())), "success");
  }
  for (int i = 0; i < num_operations; ++i) {
    const auto index = pick(random, static_cast<unsigned>(groups.size()));
    auto& group = *groups[index];
    auto test_case = random_case(random, group.world_size());
    if (memories[index] && pick(random, 2) == 0) {
      test_case.shared = static_cast<std::byte*>(memories[index]);
      test_case.shared_bytes = kSharedBytes;
    }
    if (pick(own_random, 3) == 0) group.meet_soon(microseconds(pick(own_random, 300)));
    ASSERT_EQ(text_of(run_case(group, test_case)), "success") << "operation " << i;
  }
  for (auto* const memory : memories) Group::release(memory);
}

void join_and_run(const std::vector<std::string>& addresses, int rank, int world_size, size_t slot_bytes, unsigned seed,
                  int num_operations) {
  std::vector<std::unique_ptr<Group>> groups;
  for (const auto& address : addresses) {
    auto group = Group::join(group_options(address, rank, world_size, {.slot_bytes = slot_bytes}));
    ASSERT_TRUE(group) << group.error().describe();
    groups.push_back(std::move(*group));
  }
  run_random_operations(groups, seed, num_operations);
}

TEST(Stress, RandomOperationsOfThreadsInSeveralGroups) {
  const auto seed = stress_seed();
  Random random(seed);
  for (int run = 0; run < num_runs(6); ++run) {
    const int world_size = 2 + run % 7;
    const size_t slot_bytes = 4096u << pick(random, 4);
    const auto run_seed = static_cast<unsigned>(random());
    std::vector<std::string> addresses;
    for (int i = 0; i < 3; ++i) addresses.push_back(new_address());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([=] { join_and_run(addresses, rank, world_size, slot_bytes, run_seed, 300); });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(Stress, RandomOperationsOfProcesses) {
  const auto seed = stress_seed();
  Random random(seed);
  for (int run = 0; run < num_runs(6); ++run) {
    const auto run_seed = static_cast<unsigned>(random());
    const std::vector<std::string> more{new_address(), new_address()};
    const int world_size = 2 + run % 4;
    ForkedRanks ranks(world_size, [=](Group& group) {
      join_and_run(more, group.rank(), world_size, 8192, run_seed, 300);
      EXPECT_EQ(group.barrier(), nullptr);
    });
    ranks.expect_success();
  }
}

TEST(Stress, SixtyFourGroupsAtOnce) {
  run_threads(2, [](Group& first) {
    std::vector<std::unique_ptr<Group>> groups;
    for (int i = 0; i < 64; ++i) {
      char address[64] = {};
      if (first.rank() == 0) strncpy(address, new_address().c_str(), sizeof(address) - 1);
      ASSERT_EQ(text_of(first.broadcast(address, {DType::kBytes, sizeof(address)}, 0)), "success");
      auto group = Group::join(group_options(address, first.rank(), 2, {.slot_bytes = 512 << 10}));
      ASSERT_TRUE(group) << group.error().describe();
      groups.push_back(std::move(*group));
    }
    run_random_operations(groups, 7, 300);
  });
}

// Shared memory that a run has left mapped.
std::string leftovers() {
  std::string found;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:cohort") != std::string::npos) found += line + "\n";
  }
  return found;
}

size_t num_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(Stress, ShortLivesLeaveNothing) {
  run_threads(1, [](Group&) {});  // the first group of a process starts to listen to the dump signal
  const auto before = num_descriptors();
  const auto mapped = leftovers();  // arenas of other tests in this process
  for (int run = 0; run < num_runs(300); ++run) {
    run_threads(1 + run % 3, [](Group& group) {
      void* memory = nullptr;
      ASSERT_EQ(text_of(group.allocate(10, &memory)), "success");
      ASSERT_EQ(text_of(run_case(group, {.kind = OpKind::kAllReduce, .count = 50})), "success");
      Group::release(memory);
    });
  }
  EXPECT_EQ(num_descriptors(), before);
  EXPECT_EQ(leftovers(), mapped);
}

// Operations without end; ends well only by the loss of a rank, with exit code 0.
void run_until_failure(Group& group, unsigned seed) {
  Random random(seed);
  while (true) {
    const auto test_case = random_case(random, group.world_size());
    const auto outcome = run_case(group, test_case);
    if (testing::Test::HasFailure()) return;
    if (!outcome) continue;
    EXPECT_EQ(outcome->kind, Failure::Kind::kLostRank) << text_of(outcome);
    return;
  }
}

// Several runs at a time, as they mostly sleep.
TEST(Stress, RanksKilledAtRandomMoments) {
  const auto seed = stress_seed();
  Random random(seed);
  constexpr int kAtATime = 8;
  const auto before = num_descriptors();
  const auto mapped = leftovers();
  for (int run = 0; run < num_runs(160); run += kAtATime) {
    std::vector<std::unique_ptr<ForkedRanks>> teams;
    std::vector<int> victims;
    for (int i = 0; i < kAtATime; ++i) {
      const int world_size = 2 + static_cast<int>(pick(random, 3));
      const auto run_seed = static_cast<unsigned>(random());
      teams.push_back(
          std::make_unique<ForkedRanks>(world_size, [run_seed](Group& group) { run_until_failure(group, run_seed); }));
      victims.push_back(static_cast<int>(pick(random, static_cast<unsigned>(world_size))));
    }
    for (const auto& team : teams) team->wait_until_joined();
    for (int i = 0; i < kAtATime; ++i) {
      const auto index = static_cast<size_t>(i);
      auto& team = *teams[index];
      std::this_thread::sleep_for(microseconds(pick(random, 3000)));
      const auto other = victims[index] == 0 ? 1 : 0;
      if (pick(random, 2) == 0) {  // a late rank must not matter
        team.signal(other, SIGSTOP);
        std::this_thread::sleep_for(microseconds(pick(random, 3000)));
        team.signal(other, SIGCONT);
      }
      team.signal(victims[index], SIGKILL);
    }
    for (int i = 0; i < kAtATime; ++i) {
      const auto index = static_cast<size_t>(i);
      for (int rank = 0; rank < teams[index]->world_size(); ++rank) {
        const auto status = teams[index]->wait(rank, std::chrono::seconds(30));
        if (rank == victims[index]) {
          EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
        } else {
          EXPECT_EQ(status, 0) << teams[index]->output(rank);
        }
      }
    }
  }
  EXPECT_EQ(num_descriptors(), before);
  EXPECT_EQ(leftovers(), mapped);
}

}  // namespace
}  // namespace cohort::shm
