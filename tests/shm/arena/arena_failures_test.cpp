// Ranks that stop, or die, while they write in another rank's memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "cohort/base/system/env.h"
#include "cohort/shm/arena/process_arena.h"
#include "cohort/shm/terms/bytes.h"
#include "cohort/shm/transfer/exchange.h"
#include "tests/shm/ranks.h"
#include "tests/shm/stress_seed.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kFailureArena = size_t{1} << 30;
constexpr size_t kManyFloats = size_t{8} << 20;  // 32 MiB of float32: some milliseconds
constexpr float kUntouched = 42;

// What the ranks tell each other beside the group.
struct Stage {
  std::atomic<int> num_given_up = 0;
  std::atomic<bool> is_over = false;
};

class SharedStage {
 public:
  SharedStage() : stage_(new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Stage) {}
  ~SharedStage() { munmap(stage_, 4096); }
  Stage* operator->() const { return stage_; }

 private:
  Stage* stage_;
};

template <class Condition>
void wait_until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
}

void stop_after(std::chrono::microseconds delay) {
  signal(SIGALRM, [](int) { raise(SIGSTOP); });
  const itimerval timer{{0, 0}, {0, std::max<suseconds_t>(delay.count(), 1)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

float* take_filled(float value) {
  auto* const data = static_cast<float*>(process_arena()->take(kManyFloats * sizeof(float)));
  std::fill_n(data, kManyFloats, value);
  return data;
}

using Operation = Outcome (*)(Group&, float*, const CallOptions&);

Outcome all_reduce(Group& group, float* data, const CallOptions& options) {
  return group.all_reduce(data, data, {DType::kFloat32, kManyFloats}, {}, options);
}

Outcome broadcast(Group& group, float* data, const CallOptions& options) {
  return group.broadcast(data, {DType::kFloat32, kManyFloats}, 1, options);
}

Outcome all_gather(Group& group, float* data, const CallOptions& options) {
  const auto part = kManyFloats / static_cast<size_t>(group.world_size());
  std::vector<void*> outs;
  for (int rank = 0; rank < group.world_size(); ++rank) outs.push_back(data + static_cast<size_t>(rank) * part);
  return group.all_gather(outs[static_cast<size_t>(group.rank())], outs.data(), {DType::kFloat32, part}, options);
}

// In which ranks only read each other's memory.
Outcome exchange(Group& group, float* data, const CallOptions& options) {
  constexpr size_t kPart = kManyFloats / 4;
  const void* const ins[2] = {data, data + kPart};
  void* const outs[2] = {data + 2 * kPart, data + 3 * kPart};
  const size_t counts[2] = {kPart, kPart};
  return group.all_to_all(ins, counts, outs, counts, DType::kFloat32, options);
}

Outcome wait_for(Group& group, const TransferPtr& transfer) {
  group.exchange().wait(transfer);
  return transfer->failure();
}

// Both copy: the sender writes in the receiver's memory.
Outcome send_to_rank_1(Group& group, float* data, const CallOptions& options) {
  const Elements elements{DType::kFloat32, kManyFloats};
  return wait_for(group, group.rank() == 0 ? group.exchange().send(data, elements, 1, 3, options)
                                           : group.exchange().receive(data, elements, 0, 3, options));
}

Outcome send_to_rank_0(Group& group, float* data, const CallOptions& options) {
  const Elements elements{DType::kFloat32, kManyFloats};
  return wait_for(group, group.rank() == 1 ? group.exchange().send(data, elements, 0, 3, options)
                                           : group.exchange().receive(data, elements, 1, 3, options));
}

// What is received lies in an arena, what is sent does not: the sender alone copies.
Outcome send_own_to_rank_0(Group& group, float* data, const CallOptions& options) {
  if (group.rank() == 0) return send_to_rank_0(group, data, options);
  static const std::vector<float> own(kManyFloats, 3);
  return wait_for(group, group.exchange().send(own.data(), {DType::kFloat32, kManyFloats}, 0, 3, options));
}

// Whether what a rank gave to an operation that failed is in quarantine.
enum class Quarantine : uint8_t { kAlways, kIfWritten };

struct Stopping {
  Operation operation;
  Quarantine quarantine = Quarantine::kAlways;
  int world_size = 2;
};

// Rank 1 is stopped somewhere in the operation, the others give it up and use their memory for something else; rank 1 goes on.
// Returns whether rank 1 was stopped within the operation.
bool stop_one(const Stopping& how, std::chrono::microseconds delay) {
  SharedStage stage;
  ForkedRanks ranks(
      how.world_size,
      [&](Group& group) {
        auto* data = take_filled(static_cast<float>(group.rank() + 1));
        ASSERT_EQ(text_of(group.barrier()), "success");
        if (group.rank() == 1) stop_after(delay);
        const auto outcome = how.operation(group, data, {.timeout = milliseconds(200)});
        std::cout << (outcome ? "failed" : "succeeded") << std::flush;
        if (group.rank() == 1) {
          setitimer(ITIMER_REAL, nullptr, nullptr);
          stage->is_over = true;
          return;
        }
        process_arena()->release(data);
        auto* const other = take_filled(kUntouched);
        ++stage->num_given_up;
        wait_until([&] { return stage->is_over.load(); });
        EXPECT_TRUE(std::all_of(other, other + kManyFloats, [](float each) { return each == kUntouched; }));
        const bool is_in_quarantine = process_arena()->stats().quarantined_bytes > 0;
        EXPECT_TRUE(outcome || !is_in_quarantine);
        EXPECT_TRUE(!outcome || how.quarantine == Quarantine::kIfWritten || is_in_quarantine);
      },
      {.slot_bytes = 512 << 10, .arena_bytes = kFailureArena});
  wait_until([&] { return stage->num_given_up == how.world_size - 1; });
  // It may stop only now, when all is over.
  for (int i = 0; i < 10'000 && !stage->is_over; ++i) {
    ranks.signal(1, SIGCONT);
    std::this_thread::sleep_for(milliseconds(10));
  }
  ranks.expect_success();
  bool has_failed = false;
  for (int rank = 0; rank < how.world_size; ++rank) has_failed = has_failed || ranks.output(rank) == "failed";
  EXPECT_TRUE(!has_failed || ranks.output(1) == "failed") << ranks.output(1);
  return has_failed;
}

void stop_often(const Stopping& how) {
  const auto num_runs = base::env_int("COHORT_STRESS_RUNS").value().value_or(6);
  std::mt19937 random(stress_seed());
  int num_within = 0;
  constexpr int kMostRuns = 40;  // until one falls within the operation
  for (int run = 0; run < num_runs || (num_within == 0 && run < kMostRuns); ++run) {
    num_within += stop_one(how, std::chrono::microseconds(random() % 5000)) ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  std::cout << num_within << " of " << num_runs << " within the operation\n";
  EXPECT_GT(num_within, 0);
}

TEST(ArenaFailures, AStoppedRankWritesInNoOtherTensorAndReportsNoSuccess) { stop_often({all_reduce}); }
TEST(ArenaFailures, TheSameInABroadcast) { stop_often({broadcast}); }
TEST(ArenaFailures, TheSameInAnAllGather) { stop_often({all_gather}); }
TEST(ArenaFailures, TheSameInAnExchange) { stop_often({exchange}); }

TEST(ArenaFailures, OneOfThreeThatStopsWritesInNoOtherTensorOfEither) {
  for (const auto operation : {all_reduce, broadcast, all_gather}) {
    stop_often({.operation = operation, .world_size = 3});
  }
}

TEST(ArenaFailures, AStoppedReceiverReportsNoSuccess) { stop_often({send_to_rank_1, Quarantine::kIfWritten}); }
TEST(ArenaFailures, AStoppedSenderWritesInNoOtherTensor) { stop_often({send_to_rank_0, Quarantine::kIfWritten}); }
TEST(ArenaFailures, AStoppedSenderThatCopiesAloneDoesNeither) {
  stop_often({send_own_to_rank_0, Quarantine::kIfWritten});
}

// Messages until a rank is killed by its own alarm; each that came is checked.
void kill_one_in_a_message(int victim) {
  constexpr size_t kCount = kManyFloats / 4;
  ForkedRanks ranks(2,
                    [&](Group& group) {
                      auto& exchange = group.exchange();
                      auto* const data = take_filled(1);
                      const Elements elements{DType::kFloat32, kCount};
                      ASSERT_EQ(text_of(group.barrier()), "success");
                      if (group.rank() == victim) {
                        signal(SIGALRM, [](int) { raise(SIGKILL); });
                        const itimerval timer{{0, 0}, {0, 6000}};
                        setitimer(ITIMER_REAL, &timer, nullptr);
                      }
                      Outcome outcome;
                      while (!outcome) {
                        if (group.rank() == 1) std::memset(data, 0, kCount * sizeof(float));
                        outcome = wait_for(group, group.rank() == 0 ? exchange.send(data, elements, 1, 0)
                                                                    : exchange.receive(data, elements, 0, 0));
                        // The first is right, and each is like the one before it.
                        const bool is_right = data[0] == 1 && std::memcmp(at(data, 0), at(data, sizeof(float)),
                                                                          (kCount - 1) * sizeof(float)) == 0;
                        EXPECT_TRUE(outcome || is_right);
                      }
                      std::cout << text_of(outcome);
                    },
                    {.slot_bytes = 512 << 10, .arena_bytes = kFailureArena});
  const auto text = ranks.output(1 - victim);
  EXPECT_NE(text.find(" was killed by signal 9 (SIGKILL)\n"), std::string::npos) << text;
  EXPECT_EQ(ranks.wait(1 - victim), 0) << text;
}

TEST(ArenaFailures, TheSenderIsKilledInAMessage) { kill_one_in_a_message(0); }
TEST(ArenaFailures, TheReceiverIsKilledInAMessage) { kill_one_in_a_message(1); }

TEST(ArenaFailures, AKilledRankLeavesItsNameAndItsMemory) {
  ForkedRanks ranks(2,
                    [](Group& group) {
                      auto* const data = take_filled(static_cast<float>(group.rank() + 1));
                      ASSERT_EQ(text_of(group.barrier()), "success");
                      if (group.rank() == 1) {
                        signal(SIGALRM, [](int) { raise(SIGKILL); });
                        const itimerval timer{{0, 0}, {0, 2000}};
                        setitimer(ITIMER_REAL, &timer, nullptr);
                      }
                      Outcome outcome;
                      while (!outcome) outcome = all_reduce(group, data, {});
                      std::cout << text_of(outcome);
                      EXPECT_GE(process_arena()->stats().quarantined_bytes, kManyFloats * sizeof(float));
                    },
                    {.slot_bytes = 512 << 10, .arena_bytes = kFailureArena});
  EXPECT_NE(ranks.output(0).find(" was killed by signal 9 (SIGKILL)\n"), std::string::npos) << ranks.output(0);
}

}  // namespace
}  // namespace cohort::shm
