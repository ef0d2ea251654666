#include "cohort/shm/waiting.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <thread>
#include <vector>

namespace cohort::shm {
namespace {

using std::chrono::steady_clock;

struct Patient final : Lookout {
  Outcome look() override {
    ++num_looks;
    return nullptr;
  }
  int num_looks = 0;
};

struct GivesUp final : Lookout {
  Outcome look() override { return fail({Failure::Kind::kAborted, {"enough"}, ""}); }
};

constexpr Patience kSleepsAtOnce{0, std::chrono::microseconds(0)};

TEST(Waiting, WhatHasBeenReachedNeedsNoWait) {
  Counter counter{};
  counter.raise(7);
  Patient lookout;
  EXPECT_EQ(wait_for(counter, 7, kSleepsAtOnce, lookout), nullptr);
  EXPECT_EQ(wait_for(counter, 3, kSleepsAtOnce, lookout), nullptr);
  EXPECT_EQ(lookout.num_looks, 0);
}

TEST(Waiting, ThreadsPassATokenBothWaysAwakeAndAsleep) {
  for (const auto patience : {Patience::shared_cores(), Patience::own_core(), kSleepsAtOnce}) {
    constexpr uint64_t kRounds = 3000;
    Counter there{};
    Counter back{};
    uint64_t plain = 0;  // ordered by the counters alone
    std::thread other([&] {
      Patient lookout;
      for (uint64_t round = 1; round <= kRounds; ++round) {
        ASSERT_EQ(wait_for(there, round, patience, lookout), nullptr);
        ++plain;
        back.raise(round);
      }
    });
    Patient lookout;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      ++plain;
      there.raise(round);
      ASSERT_EQ(wait_for(back, round, patience, lookout), nullptr);
    }
    other.join();
    EXPECT_EQ(plain, 2 * kRounds);
    EXPECT_EQ(there.num_sleepers, 0u);
    EXPECT_EQ(back.num_sleepers, 0u);
  }
}

// As wait_for() does, but in one sleep, from which only the raise can wake it before the hang limit. False: it was not woken.
bool sleep_until_woken(Counter& counter) {
  const timespec hang_limit{20, 0};
  counter.num_sleepers.fetch_add(1);
  const auto slept =
      counter.value.load() == 0 ? syscall(SYS_futex, &counter.value, FUTEX_WAIT, 0, &hang_limit, nullptr, 0) : 0;
  const bool is_late = slept != 0 && errno == ETIMEDOUT;
  counter.num_sleepers.fetch_sub(1);
  return !is_late;
}

TEST(Waiting, OneRaiseWakesAllSleepersAtOnce) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    Counter counter{};
    std::vector<std::thread> sleepers;
    std::atomic<int> num_woken = 0;
    for (int i = 0; i < 8; ++i) sleepers.emplace_back([&] { num_woken += sleep_until_woken(counter); });
    while (counter.num_sleepers < 8) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // to be asleep indeed
    counter.raise(1);
    for (auto& sleeper : sleepers) sleeper.join();
    EXPECT_EQ(num_woken, 8);
  }
}

TEST(Waiting, ProcessesShareACounter) {
  auto* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const counters = new (memory) Counter[2]{};
  const auto child = fork();
  if (child == 0) {
    Patient lookout;
    for (uint64_t round = 1; round <= 1000; ++round) {
      if (wait_for(counters[0], round, kSleepsAtOnce, lookout)) _exit(1);
      counters[1].raise(round);
    }
    _exit(0);
  }
  Patient lookout;
  for (uint64_t round = 1; round <= 1000; ++round) {
    counters[0].raise(round);
    ASSERT_EQ(wait_for(counters[1], round, kSleepsAtOnce, lookout), nullptr);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, 4096);
}

TEST(Waiting, TheLookoutEndsAWait) {
  Counter counter{};
  GivesUp lookout;
  const auto outcome = wait_for(counter, 1, kSleepsAtOnce, lookout);
  ASSERT_NE(outcome, nullptr);
  EXPECT_EQ(outcome->causes.front(), "enough");
  EXPECT_EQ(counter.num_sleepers, 0u);
}

TEST(Waiting, WhatIsReachedInTheEndCountsMoreThanAFailure) {
  struct RaisesAndFails final : Lookout {
    explicit RaisesAndFails(Counter& counter) : counter(counter) {}
    Outcome look() override {
      counter.raise(1);
      return fail({Failure::Kind::kLostRank, {"gone"}, ""});
    }
    Counter& counter;
  };
  Counter counter{};
  RaisesAndFails lookout(counter);
  EXPECT_EQ(wait_for(counter, 1, kSleepsAtOnce, lookout), nullptr);
}

}  // namespace
}  // namespace cohort::shm
