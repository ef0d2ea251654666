#include "cohort/shm/transfer/waiting.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace cohort::shm {
namespace {

using std::chrono::steady_clock;

constexpr auto kHangLimit = std::chrono::seconds(100);

struct Patient final : Lookout {
  Outcome look() override {
    ++num_looks;
    return steady_clock::now() < end ? nullptr : fail({Failure::Kind::kTimeout, {"nobody comes"}, ""});
  }
  const steady_clock::time_point end = steady_clock::now() + kHangLimit;
  int num_looks = 0;
};

struct GivesUp final : Lookout {
  Outcome look() override { return fail({Failure::Kind::kAborted, {"enough"}, ""}); }
};

constexpr Patience kSleepsAtOnce{0, std::chrono::microseconds(0)};

/// What `size` ranks share to meet each other.
struct Place {
  static constexpr int kMost = 8;
  Counter counters[kMost];
  Bell bell;
  Gathering of(int rank, int size) {
    Gathering gathering{.own = &counters[rank], .bell = &bell};
    for (int i = 1; i < size; ++i) gathering.others.push_back(&counters[(rank + i) % size]);
    return gathering;
  }
};

TEST(Waiting, WhatHasBeenReachedNeedsNoWait) {
  Place place{};
  place.of(1, 2).arrive(7);
  Patient lookout;
  EXPECT_EQ(wait_for(place.of(0, 2), 7, kSleepsAtOnce, lookout), nullptr);
  EXPECT_EQ(wait_for(place.of(0, 2), 3, kSleepsAtOnce, lookout), nullptr);
  EXPECT_EQ(lookout.num_looks, 0);
}

// Each rank writes a number before it arrives, and reads all others' afterwards. By parity, as in a group.
void meet_often(std::vector<Place>& places, std::vector<std::vector<uint64_t>>& numbers, int rank, int size,
                const Patience& patience, uint64_t num_rounds) {
  Patient lookout;
  for (uint64_t round = 1; round <= num_rounds; ++round) {
    const auto gathering = places[round & 1].of(rank, size);
    numbers[round & 1][static_cast<size_t>(rank)] =
        round * 100 + static_cast<uint64_t>(rank);  // ordered by the counters alone
    gathering.arrive(round);
    ASSERT_EQ(wait_for(gathering, round, patience, lookout), nullptr);
    for (int peer = 0; peer < size; ++peer) {
      ASSERT_EQ(numbers[round & 1][static_cast<size_t>(peer)], round * 100 + static_cast<uint64_t>(peer));
    }
  }
}

void keep_to_one_core() {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  CPU_ZERO(&cores);
  CPU_SET(first, &cores);
  ASSERT_EQ(sched_setaffinity(0, sizeof(cores), &cores), 0);
}

TEST(Waiting, ThreadsMeetAwakeAndAsleepWhateverCoresTheyHave) {
  for (const int size : {2, 3, 8}) {
    for (const auto patience : {Patience::shared_cores(), Patience::own_core(), kSleepsAtOnce}) {
      for (const bool on_one_core : {false, true}) {
        std::vector<Place> places(2);
        std::vector<std::vector<uint64_t>> numbers(2, std::vector<uint64_t>(static_cast<size_t>(size)));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < size; ++rank) {
          threads.emplace_back([&, rank] {
            if (on_one_core) keep_to_one_core();
            meet_often(places, numbers, rank, size, patience, 500);
          });
        }
        for (auto& thread : threads) thread.join();
        for (const auto& place : places) EXPECT_EQ(place.bell.num_sleepers, 0u);
      }
    }
  }
}

TEST(Waiting, YieldsThatLetInNobodyEndInSleep) {
  const auto place = std::make_unique<Place>();
  std::thread waiter([&] {
    Patient lookout;
    const Patience patience{
        .num_pauses = 0, .yield_time = 2 * kHangLimit, .num_idle_yields = 5, .least_turn = kHangLimit};
    EXPECT_EQ(wait_for(place->of(0, 2), 1, patience, lookout), nullptr);
  });
  const auto end = steady_clock::now() + kHangLimit / 2;
  while (place->bell.num_sleepers == 0 && steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(place->bell.num_sleepers, 1u);
  place->of(1, 2).arrive(1);
  waiter.join();
}

// As wait_for() does, but in long slices, from which only the bell can wake it before the hang limit. False: it was not woken.
bool sleep_until_woken(const Gathering& gathering) {
  const auto end = steady_clock::now() + kHangLimit;
  while (steady_clock::now() < end) {
    const auto num_rings = gathering.bell->begin_sleep();
    if (!gathering.is_complete(1)) gathering.bell->sleep(num_rings, kHangLimit);
    gathering.bell->end_sleep();
    if (gathering.is_complete(1)) break;
  }
  return steady_clock::now() < end;
}

TEST(Waiting, TheLastToArriveWakesAllSleepersAtOnce) {
  constexpr int kSize = Place::kMost;
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    const auto place = std::make_unique<Place>();
    std::vector<std::thread> sleepers;
    std::atomic<int> num_woken = 0;
    for (int rank = 1; rank < kSize; ++rank) {
      sleepers.emplace_back([&, rank] {
        const auto gathering = place->of(rank, kSize);
        gathering.arrive(1);
        num_woken += sleep_until_woken(gathering);
      });
    }
    while (place->bell.num_sleepers < kSize - 1) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // to be asleep indeed
    EXPECT_EQ(place->bell.num_rings, 0u);                       // nobody has been woken for nothing
    place->of(0, kSize).arrive(1);
    for (auto& sleeper : sleepers) sleeper.join();
    EXPECT_EQ(num_woken, kSize - 1);
  }
}

// The third has not come, but the sleeper waits for one alone.
TEST(Waiting, WhoArrivesAloneWakesWhoWaitsForIt) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    const auto place = std::make_unique<Place>();
    bool was_woken = false;
    const Gathering one{.own = &place->counters[0], .others = {&place->counters[1]}, .bell = &place->bell};
    std::thread sleeper([&] { was_woken = sleep_until_woken(one); });
    while (place->bell.num_sleepers == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // to be asleep indeed
    place->of(1, 3).arrive_alone(1);
    sleeper.join();
    EXPECT_TRUE(was_woken);
  }
}

TEST(Waiting, ForOneNeedsNoOther) {
  Place place{};
  place.of(2, 3).arrive_alone(7);
  Patient lookout;
  EXPECT_EQ(wait_for_one(place.of(0, 3), 1, 7, kSleepsAtOnce, lookout), nullptr);
  EXPECT_EQ(lookout.num_looks, 0);
}

// Two arrive at the same time: one of them at least must find that nobody is missing.
TEST(Waiting, OfTwoWhoArriveAtOnceOneWakesTheSleeper) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    const auto place = std::make_unique<Place>();
    place->of(0, 3).arrive(1);
    std::latch start(2);
    bool was_woken = false;
    std::thread sleeper([&] { was_woken = sleep_until_woken(place->of(0, 3)); });
    while (place->bell.num_sleepers == 0) std::this_thread::yield();
    const auto arrive = [&](int rank) {
      start.arrive_and_wait();
      place->of(rank, 3).arrive(1);
    };
    std::thread first(arrive, 1), second(arrive, 2);
    for (auto* const thread : {&first, &second, &sleeper}) thread->join();
    EXPECT_TRUE(was_woken);
  }
}

TEST(Waiting, ProcessesMeet) {
  auto* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const place = new (memory) Place{};
  const auto meet_1000_times = [place](int rank) {
    const auto gathering = place->of(rank, 2);
    Patient lookout;
    for (uint64_t round = 1; round <= 1000; ++round) {
      gathering.arrive(round);
      if (wait_for(gathering, round, kSleepsAtOnce, lookout)) return false;
    }
    return true;
  };
  const auto child = fork();
  if (child == 0) _exit(meet_1000_times(1) ? 0 : 1);
  EXPECT_TRUE(meet_1000_times(0));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, 4096);
}

TEST(Waiting, TheLookoutEndsAWait) {
  Place place{};
  GivesUp lookout;
  const auto outcome = wait_for(place.of(0, 2), 1, kSleepsAtOnce, lookout);
  ASSERT_NE(outcome, nullptr);
  EXPECT_EQ(outcome->causes.front(), "enough");
  EXPECT_EQ(place.bell.num_sleepers, 0u);
}

TEST(Waiting, WhatIsReachedInTheEndCountsMoreThanAFailure) {
  struct ArrivesAndFails final : Lookout {
    explicit ArrivesAndFails(const Gathering& gathering) : gathering(gathering) {}
    Outcome look() override {
      gathering.arrive(1);
      return fail({Failure::Kind::kLostRank, {"gone"}, ""});
    }
    const Gathering gathering;
  };
  Place place{};
  ArrivesAndFails lookout(place.of(1, 2));
  EXPECT_EQ(wait_for(place.of(0, 2), 1, kSleepsAtOnce, lookout), nullptr);
}

}  // namespace
}  // namespace cohort::shm
