// Ranks keep states, go away and come back: as threads with real snapshot servers, sockets and stores. What a killed rank leaves
// behind is a snapshot client that was destroyed at some point; servers of nodes that are lost are replaced by empty ones.
#include "cohort/snapshot/snapshot_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "cohort/store/tcp/tcp_client.h"
#include "tests/snapshot/job.h"

namespace cohort::snapshot {
namespace {

void start_afresh(SnapshotClient& client) {
  const auto finding = client.look();
  ASSERT_TRUE(finding) << finding.error().describe();
  EXPECT_FALSE(finding->found) << finding->found->choice.step;
  EXPECT_EQ(finding->why_not, "");
  ASSERT_TRUE(client.settle(nullptr));
}

/// Looks, compares and settles. `from_node`: where it must come from.
void go_on(SnapshotClient& client, int rank, int64_t step, int from_node = -1, size_t own_bytes = kOwnBytes) {
  const auto finding = client.look();
  ASSERT_TRUE(finding) << finding.error().describe();
  ASSERT_TRUE(finding->found) << finding->why_not;
  EXPECT_EQ(problem_of(*finding->found, rank, step, own_bytes), "") << "rank " << rank;
  EXPECT_EQ(finding->found->from_node, from_node) << "rank " << rank;
  ASSERT_TRUE(client.settle(&*finding->found));
}

void keep_steps(SnapshotClient& client, int rank, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) keep_state(client, rank, step);
  ASSERT_TRUE(client.wait());
  EXPECT_EQ(client.complete_step(), last);
  EXPECT_EQ(client.partner_problem(), "");
}

TEST(SnapshotClient, ComesBackWithTheLastState) {
  for (const int64_t steps : {1, 2, 5}) {
    Job job(1);
    job.on_ranks([&](SnapshotClient& client, int rank) {
      start_afresh(client);
      keep_steps(client, rank, 1, steps);
    });
    job.next_round();
    job.on_ranks([&](SnapshotClient& client, int rank) {
      go_on(client, rank, steps);
      keep_steps(client, rank, steps + 1, steps + 3);
    });
    job.next_round();
    job.on_ranks([&](SnapshotClient& client, int rank) { go_on(client, rank, steps + 3); });
  }
}

TEST(SnapshotClient, AStateThatOneRankHasNotFinishedIsNotTaken) {
  Job job(1);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 2);
    write_state(client, rank, 3);
    if (rank == 0) client.commit();  // rank 1 dies in the copy
  });
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) { go_on(client, rank, 2); });
}

TEST(SnapshotClient, ARankDoesNotWriteOverWhatOthersStillNeed) {
  Job job(1);
  std::atomic<bool> has_begun = false;
  job.on_ranks([&](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 2);
    if (rank == 1) {
      write_state(client, rank, 3);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_FALSE(has_begun) << "rank 0 wrote over step 2, the only one that both had";
      client.commit();
      EXPECT_TRUE(client.wait());
      return;
    }
    keep_state(client, rank, 3);
    const auto slot = client.begin({.step = 4, .num_own_bytes = kOwnBytes}, "step 4");
    has_begun = true;
    EXPECT_TRUE(slot);
  });
}

TEST(SnapshotClient, StaleStatesDoNotMixWithNewOnes) {
  Job job(1);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 2);
    if (rank == 0) keep_state(client, rank, 3);
  });
  // Back at 2; then rank 1 alone finishes another step 3.
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) {
    go_on(client, rank, 2);
    if (rank == 1) keep_state(client, rank, 3);
  });
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) { go_on(client, rank, 2); });
}

TEST(SnapshotClient, AStateMayGrow) {
  Job job(1);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_state(client, rank, 1, 10);
    keep_state(client, rank, 2, 10);
    keep_state(client, rank, 3, 500000);
    ASSERT_TRUE(client.wait());
  });
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) {
    go_on(client, rank, 3, -1, 500000);
    write_state(client, rank, 4, 900000);  // dies; what there was must still be there
  });
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) { go_on(client, rank, 3, -1, 500000); });
}

TEST(SnapshotClient, ALostNodeIsReplacedFromItsPartner) {
  for (const size_t lost : {0, 1, 2}) {
    Job job(3);
    job.on_ranks([](SnapshotClient& client, int rank) {
      start_afresh(client);
      keep_steps(client, rank, 1, 3);
    });
    job.nodes[lost] = Job::start_node();
    job.next_round();
    job.on_ranks([&](SnapshotClient& client, int rank) {
      const bool is_new = rank / 2 == static_cast<int>(lost);
      const auto finding = client.look();
      ASSERT_TRUE(finding) << finding.error().describe();
      ASSERT_TRUE(finding->found) << finding->why_not;
      EXPECT_EQ(problem_of(*finding->found, rank, 3), "") << "rank " << rank;
      EXPECT_EQ(finding->found->from_node == -1, !is_new) << "rank " << rank;
      ASSERT_TRUE(client.settle(&*finding->found));
      keep_steps(client, rank, 4, 5);
    });
    // Once more, another one: the new node has become a partner and has one.
    job.nodes[(lost + 1) % 3] = Job::start_node();
    job.next_round();
    job.on_ranks([&](SnapshotClient& client, int rank) {
      const auto finding = client.look();
      ASSERT_TRUE(finding && finding->found);
      EXPECT_EQ(problem_of(*finding->found, rank, 5), "") << "rank " << rank;
      ASSERT_TRUE(client.settle(&*finding->found));
    });
  }
}

TEST(SnapshotClient, NodesMayChangePlaces) {
  Job job(3);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 2);
  });
  std::swap(job.nodes[0], job.nodes[2]);
  job.next_round();
  job.on_ranks([&](SnapshotClient& client, int rank) {
    const auto finding = client.look();
    ASSERT_TRUE(finding && finding->found) << finding->why_not;
    EXPECT_EQ(problem_of(*finding->found, rank, 2), "") << "rank " << rank;
    ASSERT_TRUE(client.settle(&*finding->found));
    keep_steps(client, rank, 3, 4);
  });
  // What is of no use any more is given back: two files of each rank, and two copies.
  for (const auto& node : job.nodes) {
    EXPECT_EQ(ServerConnection::connect(node->name())->take_all()->size(), 8u);
  }
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int rank) { go_on(client, rank, 4); });
}

TEST(SnapshotClient, TwoLostNeighborsAreTooMany) {
  Job job(3);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 2);
  });
  job.nodes[0] = Job::start_node();
  job.nodes[1] = Job::start_node();
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int) {
    const auto finding = client.look();
    ASSERT_TRUE(finding);
    EXPECT_FALSE(finding->found);
    EXPECT_EQ(finding->why_not, "the snapshot of step 2 lacks the state of ranks 0 and 1");
    ASSERT_TRUE(client.settle(nullptr));
  });
}

TEST(SnapshotClient, FewerRanksGoOnFromWhatAllHaveAlike) {
  for (const size_t own_bytes : {size_t{0}, kOwnBytes}) {
    Job job(2);
    job.on_ranks([&](SnapshotClient& client, int rank) {
      start_afresh(client);
      keep_state(client, rank, 1, own_bytes);
      ASSERT_TRUE(client.wait());
    });
    job.nodes.erase(job.nodes.begin());
    job.next_round();
    job.on_ranks([&](SnapshotClient& client, int rank) {
      const auto finding = client.look();
      ASSERT_TRUE(finding);
      ASSERT_EQ(finding->found.has_value(), own_bytes == 0);
      if (own_bytes != 0) {
        EXPECT_EQ(finding->why_not, "the snapshot of step 1 is sharded over 4 ranks, and this run has 2");
        return;
      }
      EXPECT_EQ(problem_of(*finding->found, rank, 1, 0), "");
      EXPECT_FALSE(finding->found->is_same_world);
      ASSERT_TRUE(client.settle(&*finding->found));
      keep_state(client, rank, 2, own_bytes);
      ASSERT_TRUE(client.wait());
    });
    if (own_bytes == 0) {
      EXPECT_EQ(ServerConnection::connect(job.nodes[0]->name())->take_all()->size(), 2u);
    }
  }
}

TEST(SnapshotClient, RanksThatHaveDifferentThingsKeepAllOfTheirs) {
  Job job(1);
  job.on_ranks([](SnapshotClient& client, int rank) {
    start_afresh(client);
    write_state(client, rank, 1, kOwnBytes, kSharedBytes + static_cast<size_t>(rank));
    client.commit();
    ASSERT_TRUE(client.wait());
    EXPECT_FALSE(client.shares());
    EXPECT_EQ(client.complete_step(), std::nullopt);
    write_state(client, rank, 2, kOwnBytes, 0);
    client.commit();
    ASSERT_TRUE(client.wait());
    EXPECT_EQ(client.complete_step(), 2);
  });
  job.next_round();
  job.on_ranks([](SnapshotClient& client, int) {
    const auto finding = client.look();
    ASSERT_TRUE(finding && finding->found);
    EXPECT_EQ(finding->found->choice.step, 2);
    EXPECT_TRUE(finding->found->shares.empty());
    ASSERT_TRUE(client.settle(&*finding->found));
  });
}

TEST(SnapshotClient, SaysWhyThereIsNoCopyAndGoesOn) {
  Job job(2);
  job.nodes[1] = Job::start_node("another token");
  job.next_round();
  job.on_ranks([&](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_state(client, rank, 1);
    ASSERT_TRUE(client.wait());
    EXPECT_EQ(client.complete_step(), 1);
    EXPECT_THAT(client.partner_problem(),
                testing::MatchesRegex(
                    "the launcher at 127\\.0\\.0\\.1:[0-9]+ and this node's do not trust each other\n"
                    "  hint: give all nodes the same token \\(COHORT_TOKEN or the token file of --rdzv-conf\\)"));
  });
}

TEST(SnapshotClient, EndsAtOnceWhenOthersNeverCome) {
  Job job(1);
  job.on_ranks([&](SnapshotClient& client, int rank) {
    start_afresh(client);
    if (rank == 0) keep_state(client, rank, 1);
  });
}

std::string error_of(const base::Result<void>& result) { return result ? "none" : result.error().describe(); }

// Without an end of its own, this wait would last for 30 days.
TEST(SnapshotClient, KeysThatSomebodyDeletesEndTheWaitOnAllRanks) {
  const char* const text = "somebody has deleted keys of this job from the workers' store";
  for (const bool only_the_count : {true, false}) {
    Job job(1);
    std::latch is_waiting(2);
    std::latch are_deleted(2);
    std::latch has_ended(2);
    job.on_ranks([&](SnapshotClient& client, int rank) {
      start_afresh(client);
      keep_steps(client, rank, 1, 1);
      if (rank == 1) {
        is_waiting.arrive_and_wait();
        const auto stranger = store::TcpClient::connect({.port = job.store->port()}).value();
        while (!*stranger->check({"snapshots/test/1/waiting"})) std::this_thread::yield();
        const auto keys = stranger->list_keys().value();
        for (const std::string& key : keys) {
          if (only_the_count && !key.ends_with("/1/num_members")) continue;
          ASSERT_TRUE(stranger->delete_key(key));
        }
        are_deleted.arrive_and_wait();
        has_ended.arrive_and_wait();
        keep_state(client, rank, 2);  // in a file that was not there when rank 0 gave files back
      } else {
        keep_state(client, rank, 2);
        is_waiting.arrive_and_wait();
        are_deleted.arrive_and_wait();
        EXPECT_EQ(error_of(client.wait()), text);
        has_ended.arrive_and_wait();
      }
      EXPECT_EQ(error_of(client.wait()), text) << "rank " << rank;
      EXPECT_FALSE(client.begin({.step = 3}, "")) << "it is final";
    });
    const auto files = ServerConnection::connect(job.nodes[0]->name()).value().take_all();
    EXPECT_TRUE(files && files->empty()) << "what grows old is given back";
  }
}

// `comes`: rank 1 still writes the state that rank 0 has waited for. The next round goes on from what was kept.
void expect_end_of_a_wait(bool comes) {
  SCOPED_TRACE(comes);
  Job job(1);
  const char* const text =
      "rank 0 no longer waits for the other ranks to finish a memory snapshot (1 of 2 have): it was told to end";
  std::latch has_ended(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::atomic<bool> is_told = false;
      const auto client = SnapshotClient::create(
                              job.place(rank), "test",
                              {.find_obstacle = [&](auto) { return std::string(is_told ? "it was told to end" : ""); }})
                              .value();
      start_afresh(*client);
      keep_steps(*client, rank, 1, 4);
      is_told = rank == 0;
      if (rank == 0) {
        keep_state(*client, rank, 5);
        EXPECT_EQ(error_of(client->wait()), text);
      }
      has_ended.arrive_and_wait();
      if (rank == 0 || !comes) return;
      keep_state(*client, rank, 5);
      EXPECT_EQ(error_of(client->wait()), text) << "rank 1 may not wait for rank 0";
    });
  }
  for (std::thread& rank : ranks) rank.join();
  job.next_round();
  job.on_ranks([&](SnapshotClient& client, int rank) { go_on(client, rank, comes ? 5 : 4); });
}

TEST(SnapshotClient, AWaitEndsWhereItsCallerSaysSoAndTheOthersAreTold) {
  for (const bool comes : {true, false}) expect_end_of_a_wait(comes);
}

TEST(SnapshotClient, WhatItsCallerThrowsLeavesTheWait) {
  const Job job(1);
  std::latch has_thrown(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::atomic<bool> throws = false;
      const auto client = SnapshotClient::create(job.place(rank), "test",
                                                 {.find_obstacle =
                                                      [&](auto) {
                                                        if (throws) throw std::runtime_error("interrupted");
                                                        return std::string();
                                                      }})
                              .value();
      start_afresh(*client);
      throws = rank == 0;
      if (rank == 0) {
        keep_state(*client, rank, 1);
        EXPECT_THROW((void)client->wait(), std::runtime_error);
      }
      has_thrown.arrive_and_wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(SnapshotClient, EveryWaitSaysAfterAWhileForWhatMessage) {
  using std::chrono::milliseconds;
  const Job job(2);
  testing::internal::CaptureStderr();
  std::vector<std::thread> ranks;
  const auto pause = [&](int rank) {
    if (rank != 0) std::this_thread::sleep_for(milliseconds(700));
  };
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto client =
          SnapshotClient::create(job.place(rank), "test", {.first_word = milliseconds(rank ? 60'000 : 20)}).value();
      pause(rank);
      ASSERT_TRUE(client->look());
      pause(rank);
      ASSERT_TRUE(client->settle(nullptr));
      pause(rank);
      keep_state(*client, rank, 1);
      ASSERT_TRUE(client->wait());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("warning: rank 0 has waited for 20 ms for the other nodes to say which memory "
                                       "snapshots they have\n"));
  EXPECT_THAT(said,
              testing::HasSubstr("warning: rank 0 has waited for 20 ms for the other ranks to go on from the same "
                                 "memory snapshot\n"));
  EXPECT_THAT(said, testing::HasSubstr("warning: rank 0 has waited for 20 ms for the other ranks to finish a memory "
                                       "snapshot (1 of 4 have)\n"));
}

TEST(SnapshotClient, AStoreThatIsGoneIsAnError) {
  Job job(1);
  std::latch have_kept(2);  // rank 1 needs the store until it has heard of rank 0
  job.on_ranks([&](SnapshotClient& client, int rank) {
    start_afresh(client);
    keep_steps(client, rank, 1, 1);
    have_kept.arrive_and_wait();
    if (rank == 1) return;
    keep_state(client, rank, 2);
    job.store.reset();
    const auto waited = client.wait();
    ASSERT_FALSE(waited);
    EXPECT_FALSE(client.begin({.step = 3}, ""));
  });
}

}  // namespace
}  // namespace cohort::snapshot
