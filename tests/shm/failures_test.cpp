// Ranks that die, stop, leave, come late, or call something else.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <latch>
#include <thread>

#include "cohort/shm/memory/handover.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;

std::string host() {
  char name[64] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string who(int rank, pid_t pid) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + " on " + host() + ")";
}

Outcome sum(Group& group, size_t count, const CallOptions& options = {}) {
  std::vector<float> data(count, 1.0f);
  return group.all_reduce(data.data(), data.data(), {DType::kFloat32, count}, {}, options);
}

// Every rank but 1 prints what a barrier gives.
void barrier_without_rank_1(Group& group) {
  if (group.rank() == 1) ::pause();
  std::cout << text_of(group.barrier()) << text_of(group.barrier());
}

TEST(Failures, KilledRankMessage) {
  ForkedRanks ranks(3, barrier_without_rank_1);
  ranks.wait_until_joined();
  std::this_thread::sleep_for(milliseconds(300));
  ranks.signal(1, SIGKILL);
  ranks.wait_until_zombie(1);
  const auto cause = who(1, ranks.pid(1)) + " was killed by signal 9 (SIGKILL)\n";
  const auto hint = "hint: look at the output of rank 1 for the reason\n";
  const auto refused = "the group has failed before and takes no more operations\n";
  EXPECT_EQ(ranks.output(0), cause + hint + refused + cause + hint);
  EXPECT_EQ(ranks.output(2), cause + hint + refused + cause + hint);
}

TEST(Failures, TheLongestTimeIsNoLimit) {
  std::latch is_late(1);
  run_threads(2,
              [&](Group& group) {
                float number = static_cast<float>(group.rank() + 1);
                if (group.rank() == 1) is_late.wait();
                std::thread release;
                if (group.rank() == 0) {
                  release = std::thread([&] {
                    std::this_thread::sleep_for(milliseconds(300));
                    is_late.count_down();
                  });
                }
                EXPECT_EQ(text_of(group.all_reduce(&number, &number, {DType::kFloat32, 1}, {})), "success");
                EXPECT_EQ(number, 3);
                EXPECT_EQ(text_of(group.barrier({.timeout = milliseconds::max()})), "success");
                if (release.joinable()) release.join();
              },
              {.timeout = milliseconds::max()});
}

TEST(Failures, RankThatExitsMessage) {
  ForkedRanks ranks(2, [](Group& group) {
    if (group.rank() == 1) _exit(3);
    std::cout << text_of(group.barrier());
  });
  EXPECT_EQ(ranks.output(0),
            who(1, ranks.pid(1)) + " has ended with exit code 3\nhint: look at the output of rank 1 for the reason\n");
}

TEST(Failures, RankThatHasBeenReapedIsStillFoundGone) {
  ForkedRanks ranks(2, barrier_without_rank_1);
  ranks.wait_until_joined();
  std::this_thread::sleep_for(milliseconds(200));
  ranks.signal(1, SIGKILL);
  ranks.wait(1);
  const auto text = ranks.output(0);
  EXPECT_EQ(text.rfind(who(1, ranks.pid(1)), 0), 0u) << text;
}

TEST(Failures, RankThatLeavesMessage) {
  run_threads(3, [](Group& group) {
    if (group.rank() == 2) return;
    EXPECT_EQ(text_of(group.barrier()),
              who(2, getpid()) +
                  " has left the group by destroying it\n"
                  "hint: let rank 2 make as many calls as the others before it destroys the group\n");
  });
}

TEST(Failures, WhatALeavingRankHasDoneStillCounts) {
  for (int round = 0; round < 50; ++round) {
    run_threads(3, [](Group& group) { EXPECT_EQ(text_of(sum(group, 3000)), "success"); });
  }
}

TEST(Failures, MismatchMessageOnEveryRank) {
  run_threads(4, [](Group& group) {
    const auto outcome = group.rank() == 2 ? group.barrier() : sum(group, group.rank() == 3 ? 5 : 6);
    EXPECT_EQ(
        text_of(outcome),
        "ranks 0 and 1 call all_reduce(SUM) of 6 float32\n"
        "rank 2 calls barrier\n"
        "rank 3 calls all_reduce(SUM) of 5 float32\n"
        "hint: make every rank call the same operation with the same shapes, dtypes and roots, in the same order\n");
    EXPECT_EQ(outcome->kind, Failure::Kind::kMismatch);
    EXPECT_EQ(text_of(group.failure()), text_of(outcome));
  });
}

TEST(Failures, UnevenSplitsThatDifferMessage) {
  run_threads(2, [](Group& group) {
    const float in[4] = {1, 2, 3, 4};
    float out[4] = {};
    const void* const ins[2] = {in, in + 2};
    void* const outs[2] = {out, out + 2};
    const size_t sent[2] = {2, 2};
    const size_t expected[2] = {2, group.rank() == 1 ? size_t{2} : size_t{1}};
    EXPECT_EQ(text_of(group.all_to_all(ins, sent, outs, expected, DType::kFloat32)),
              "rank 1 sends 2 elements to rank 0, which expects 1 from it\n"
              "hint: give output splits that match the other ranks' input splits\n");
  });
}

// The counts of every rank differ among themselves.
TEST(Failures, UnevenSplitsOfEveryRankThatDifferMessage) {
  run_threads(2, [](Group& group) {
    const float in[4] = {1, 2, 3, 4};
    float out[8] = {};
    const bool is_first = group.rank() == 0;
    const void* const ins[2] = {in, in + 1};
    void* const outs[2] = {out, out + 4};
    const size_t sent[2] = {1, 3};
    const size_t expected[2] = {is_first ? 1u : 2u, is_first ? 1u : 3u};
    EXPECT_EQ(text_of(group.all_to_all(ins, sent, outs, expected, DType::kFloat32)),
              "rank 0 sends 3 elements to rank 1, which expects 2 from it\n"
              "hint: give output splits that match the other ranks' input splits\n");
  });
}

TEST(Failures, TimeoutNamesWhoHasNotComeOnEveryRank) {
  std::latch told(2);
  run_threads(3, [&](Group& group) {
    if (group.rank() == 1) {
      told.wait();
      EXPECT_NE(text_of(group.barrier()).find("failed first: "), std::string::npos);
      return;
    }
    const auto outcome = sum(group, 10, {.timeout = milliseconds(group.rank() == 0 ? 300 : 60'000)});
    told.count_down();
    ASSERT_NE(outcome, nullptr);
    EXPECT_EQ(outcome->kind, Failure::Kind::kTimeout);
    const auto cause = who(1, getpid()) + " has not arrived within 300 ms";
    EXPECT_EQ(outcome->causes.front(), group.rank() == 0 ? cause : who(0, getpid()) + " failed first: " + cause);
  });
}

TEST(Failures, StoppedRankIsATimeoutAndLateOneIsNot) {
  ForkedRanks ranks(2, [](Group& group) {
    if (group.rank() == 1) raise(SIGSTOP);
    std::cout << text_of(group.barrier({.timeout = milliseconds(1000)}));
  });
  EXPECT_EQ(ranks.output(0), who(1, ranks.pid(1)) + " has not arrived within 1.0 s\n");
  ForkedRanks late(2, [](Group& group) {
    if (group.rank() == 1) raise(SIGSTOP);
    std::cout << text_of(sum(group, 100000));
  });
  late.wait_until_stopped(1);
  std::this_thread::sleep_for(milliseconds(300));
  late.signal(1, SIGCONT);
  EXPECT_EQ(late.output(0), "success");
  EXPECT_EQ(late.output(1), "success");
}

TEST(Failures, AForkedChildDoesNotLeaveForItsParent) {
  ForkedRanks ranks(2, [](Group& group) {
    EXPECT_EQ(text_of(group.barrier()), "success");
    if (group.rank() == 1) {
      const auto child = fork();
      if (child == 0) {
        group.~Group();
        _exit(0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      std::this_thread::sleep_for(milliseconds(200));
    }
    std::cout << text_of(group.barrier());
  });
  EXPECT_EQ(ranks.output(0), "success");
  EXPECT_EQ(ranks.output(1), "success");
}

TEST(Failures, AbortEndsAWait) {
  std::latch is_over(1);
  run_threads(2, [&](Group& group) {
    if (group.rank() == 1) {
      is_over.wait();
      EXPECT_NE(text_of(group.barrier()).find("failed first: the group was aborted on this rank"), std::string::npos);
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(100));
      group.abort();
    });
    EXPECT_EQ(text_of(group.barrier()), "the group was aborted on this rank\n");
    is_over.count_down();
    other.join();
  });
}

TEST(Failures, ObstaclesAreAskedForNowAndThen) {
  std::latch is_over(2);
  run_threads(2, [&](Group& group) {
    if (group.rank() == 1) {
      is_over.arrive_and_wait();
      return;
    }
    int num_calls = 0;
    const std::function<std::string()> find = [&] { return ++num_calls < 2 ? "" : "a wall"; };
    EXPECT_EQ(text_of(group.barrier({.find_obstacle = &find})), "a wall\n");
    EXPECT_EQ(num_calls, 2);
    is_over.count_down();
  });
}

TEST(Join, RankThatNeverComesMessage) {
  for (const int rank : {0, 1}) {
    auto options = group_options(new_address(), rank, 2, {.timeout = milliseconds(200)});
    bool has_lost_a_rank = false;
    options.has_lost_a_rank = &has_lost_a_rank;
    const auto group = Group::join(options);
    ASSERT_FALSE(group);
    EXPECT_FALSE(has_lost_a_rank);
    EXPECT_EQ(group.error().describe(), "cannot join the shared memory of group \"test\"\n  caused by: rank " +
                                            std::to_string(1 - rank) +
                                            " did not connect to the shared memory in time\n"
                                            "  hint: see whether these ranks run, or raise the timeout");
  }
}

TEST(Join, RankThatIsGoneIsNotWaitedFor) {
  const auto child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  auto options = group_options(new_address(), 0, 2, {});
  options.pids = {getpid(), child};
  bool has_lost_a_rank = false;
  options.has_lost_a_rank = &has_lost_a_rank;
  const auto group = Group::join(options);
  ASSERT_FALSE(group);
  EXPECT_TRUE(has_lost_a_rank);
  EXPECT_EQ(group.error().describe(), "cannot join the shared memory of group \"test\"\n  caused by: rank 1 (pid " +
                                          std::to_string(child) +
                                          ") has ended before it connected to the shared memory");
}

TEST(Join, RankThatDiesBetweenConnectingAndJoiningMessage) {
  const auto address = new_address();
  const auto child = fork();
  if (child == 0) {
    const Meeting meeting{address, 1, 2, std::chrono::steady_clock::now() + std::chrono::seconds(100), {}};
    _exit(receive_handed_over(meeting) ? 0 : 1);
  }
  bool has_lost_a_rank = false;
  auto options = group_options(address, 0, 2, {});
  options.has_lost_a_rank = &has_lost_a_rank;
  const auto group = Group::join(options);
  ASSERT_FALSE(group);
  EXPECT_TRUE(has_lost_a_rank);
  EXPECT_EQ(group.error().describe(), "cannot join the shared memory of group \"test\"\n  caused by: rank 1 (pid " +
                                          std::to_string(child) + ") has ended before it joined");
  waitpid(child, nullptr, 0);
}

TEST(Join, WrongArgumentMessage) {
  EXPECT_EQ(Group::join({.name = "g", .address = "x", .rank = 2, .world_size = 2}).error().describe(),
            "rank 2 is out of range. Valid ranks are 0 to 1");
}

}  // namespace
}  // namespace cohort::shm
