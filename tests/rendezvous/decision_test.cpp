// The leader's decisions, without nodes, stores or time.
#include "cohort/rendezvous/rounds/decision.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using namespace std::chrono_literals;
using Kind = Notice::Kind;
using Reason = RoundOver::Reason;

class Decide : public ::testing::Test {
 protected:
  Decide() {
    settings_.backend = Settings::Backend::kC10d;
    settings_.min_nodes = 2;
    settings_.max_nodes = 3;
    settings_.last_call_timeout = 30s;
  }

  NodeId come(const std::string& host, int fixed_rank = -1) {
    Member member;
    member.node = {host, "10.0.0.1", 100, 1, "default"};
    member.sort_name = host;
    member.fixed_rank = fixed_rank;
    member.max_restarts = 3;
    state_.take(Notice{Kind::kCome, -1, 0, "", member}, next_place_);
    return next_place_++;
  }
  void tell(Kind kind, NodeId id) {
    state_.take(Notice{kind, id, state_.round ? told_round(kind) : 0, "", {}}, next_place_++);
  }
  int told_round(Kind kind) const { return kind == Kind::kReady ? state_.next_round() : state_.round->number; }

  Decision decide_now() {
    note_time(&state_, settings_, now_);
    return decide(state_, settings_, now_);
  }
  /// What is decided happens. Returns: in words.
  std::string step() {
    const auto decision = decide_now();
    if (!decision.news) return "wait: " + decision.why;
    state_.take(*decision.news);
    if (const auto* over = std::get_if<OverRecord>(&*decision.news)) {
      return "over" + std::string(over->job_ends ? ", job ends: " : ": ") + over->why;
    }
    const auto& round = std::get<RoundRecord>(*decision.news);
    std::string text =
        "round " + std::to_string(round.number) + " restart " + std::to_string(round.restart_count) + ":";
    for (const auto& member : round.members) text += " " + member.node.host;
    return text;
  }
  void end_round(Reason reason) {
    state_.take(OverRecord{state_.round->number, reason, "it ended", state_.round->members[0].id, false});
  }
  void begin_static_round_of_two() {
    settings_.backend = Settings::Backend::kStatic;
    settings_.min_nodes = settings_.max_nodes = 2;
    come("node0", 0);
    come("node1", 1);
    (void)step();
  }

  Settings settings_;
  State state_;
  Clock::time_point now_ = Clock::time_point() + 1000h;
  NodeId next_place_ = 0;
};

TEST_F(Decide, WaitsForTheFirstNode) { EXPECT_EQ(step(), "wait: 0 of 2 to 3 nodes have arrived; waiting for 2 more"); }

TEST_F(Decide, WaitsForMinNodesAndNamesWhoIsThere) {
  come("node0");
  const auto decision = decide_now();
  EXPECT_EQ(decision.why, "1 of 2 to 3 nodes has arrived (node0); waiting for 1 more");
  EXPECT_FALSE(decision.until);
}

TEST_F(Decide, MaxNodesBeginAtOnce) {
  come("node2");
  come("node1");
  come("node0");
  EXPECT_EQ(step(), "round 0 restart 0: node0 node1 node2");
  EXPECT_EQ(step(), "wait: round 0 runs on 3 nodes");
}

TEST_F(Decide, MinNodesBeginAfterTheLastCall) {
  come("node0");
  come("node1");
  auto decision = decide_now();
  EXPECT_EQ(
      decision.why,
      "2 of 2 to 3 nodes have arrived (node0, node1); that is enough, but more may arrive until the last call is over");
  EXPECT_EQ(decision.until, now_ + 30s);
  now_ += 29s;
  EXPECT_FALSE(decide_now().news);
  now_ += 1s;
  EXPECT_EQ(step(), "round 0 restart 0: node0 node1");
}

TEST_F(Decide, ANodeThatGoesEndsTheLastCall) {
  come("node0");
  const auto second = come("node1");
  (void)decide_now();
  now_ += 20s;
  tell(Kind::kGone, second);
  EXPECT_EQ(step(), "wait: 1 of 2 to 3 nodes has arrived (node0); waiting for 1 more");
  now_ += 20s;
  come("node2");
  EXPECT_EQ(decide_now().until, now_ + 30s);
}

TEST_F(Decide, ASilentNodeIsNotCounted) {
  come("node0");
  const auto second = come("node1");
  state_.nodes[second].is_silent = true;
  EXPECT_EQ(step(), "wait: 1 of 2 to 3 nodes has arrived (node0); waiting for 1 more");
  state_.nodes[second].is_silent = false;
  now_ += 1s;
  EXPECT_EQ(decide_now().until, now_ + 30s);
}

TEST_F(Decide, MoreThanMaxNodesAtOnceLeaveTheLastAsSpare) {
  for (const auto* host : {"node3", "node2", "node1", "node0"}) come(host);
  EXPECT_EQ(step(), "round 0 restart 0: node1 node2 node3");
  EXPECT_EQ(step(), "wait: round 0 runs on 3 nodes; node0 waits as spare");
}

TEST_F(Decide, ALateNodeEndsTheRoundWhereThereIsRoom) {
  const auto first = come("node0");
  const auto second = come("node1");
  (void)decide_now();
  now_ += 30s;
  EXPECT_EQ(step(), "round 0 restart 0: node0 node1");
  come("node2");
  EXPECT_EQ(step(), "over: node2 has arrived, and there is room for 1");
  EXPECT_EQ(state_.over->reason, Reason::kNodesWaiting);
  EXPECT_EQ(step(), "wait: 1 of 2 to 3 nodes has arrived (node2); waiting for node0, node1 to stop its workers");
  tell(Kind::kReady, first);
  tell(Kind::kReady, second);
  EXPECT_EQ(step(), "round 1 restart 0: node0 node1 node2");
}

TEST_F(Decide, ASpareJoinsWhenANodeIsLost) {
  const auto first = come("node0");
  const auto second = come("node1");
  const auto third = come("node2");
  come("node3");
  EXPECT_EQ(step(), "round 0 restart 0: node0 node1 node2");
  state_.nodes[second].is_silent = true;
  EXPECT_EQ(step(), "over: node1 gave no sign of life for 15.0 s");
  EXPECT_EQ(state_.over->reason, Reason::kNodeLost);
  EXPECT_EQ(state_.over->id, second);
  tell(Kind::kReady, first);
  tell(Kind::kReady, third);
  EXPECT_EQ(step(), "round 1 restart 0: node0 node2 node3");
}

TEST_F(Decide, SurvivorsOfALostNodeGoOnAfterTheLastCall) {
  const auto first = come("node0");
  const auto second = come("node1");
  const auto third = come("node2");
  (void)step();
  state_.nodes[second].is_silent = true;
  (void)step();
  tell(Kind::kReady, first);
  EXPECT_EQ(step(), "wait: 1 of 2 to 3 nodes has arrived (node0); waiting for node2 to stop its workers");
  tell(Kind::kReady, third);
  EXPECT_EQ(decide_now().until, now_ + 30s);
  now_ += 30s;
  EXPECT_EQ(step(), "round 1 restart 0: node0 node2");
}

TEST_F(Decide, ALostNodeThatIsBackJoinsAgain) {
  const auto first = come("node0");
  const auto second = come("node1");
  come("node2");
  (void)step();
  state_.nodes[second].is_silent = true;
  (void)step();
  tell(Kind::kReady, first);
  tell(Kind::kReady, 2);
  state_.nodes[second].is_silent = false;
  EXPECT_EQ(step(), "wait: 2 of 2 to 3 nodes have arrived (node0, node2); waiting for node1 to stop its workers");
  tell(Kind::kReady, second);
  EXPECT_EQ(step(), "round 1 restart 0: node0 node1 node2");
}

TEST_F(Decide, ALostNodeThatIsBackTakesPartOnceItIsReady) {
  const auto first = come("node0");
  const auto second = come("node1");
  come("node2");
  (void)step();
  state_.nodes[second].is_silent = true;
  (void)step();
  tell(Kind::kReady, first);
  tell(Kind::kReady, 2);
  (void)decide_now();
  now_ += 30s;
  EXPECT_EQ(step(), "round 1 restart 0: node0 node2");
  state_.nodes[second].is_silent = false;
  EXPECT_EQ(step(), "wait: round 1 runs on 2 nodes");
  state_.take(Notice{Kind::kReady, second, 1, "", {}}, next_place_++);
  EXPECT_EQ(step(), "over: node1 has arrived, and there is room for 1");
}

TEST_F(Decide, ASecondEndOfARoundIsNoNews) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  end_round(Reason::kWorkerFailed);
  state_.take(OverRecord{0, Reason::kNodesWaiting, "said too late", 1, false});
  for (const auto id : {0, 1, 2}) tell(Kind::kReady, id);
  EXPECT_EQ(step(), "round 1 restart 1: node0 node1 node2");
  state_.take(OverRecord{0, Reason::kWorkerFailed, "said too late", 1, false});
  EXPECT_EQ(step(), "wait: round 1 runs on 3 nodes");
}

TEST_F(Decide, AfterAWorkersFailureNobodyNewIsWaitedFor) {
  const auto first = come("node0");
  const auto second = come("node1");
  (void)decide_now();
  now_ += 30s;
  (void)step();
  end_round(Reason::kWorkerFailed);
  tell(Kind::kReady, second);
  EXPECT_EQ(step(), "wait: 1 of 2 to 3 nodes has arrived (node1); waiting for node0 to stop its workers");
  tell(Kind::kReady, first);
  EXPECT_EQ(step(), "round 1 restart 1: node0 node1");
}

TEST_F(Decide, ARestartKeepsThePlacesOfItsNodesFromSpares) {
  const auto first = come("node1");
  const auto second = come("node2");
  const auto third = come("node3");
  come("node0");
  EXPECT_EQ(step(), "round 0 restart 0: node1 node2 node3");
  end_round(Reason::kWorkerFailed);
  tell(Kind::kReady, first);
  tell(Kind::kReady, second);
  EXPECT_EQ(step(), "wait: 2 of 2 to 3 nodes have arrived (node1, node2); waiting for node3 to stop its workers");
  tell(Kind::kReady, third);
  EXPECT_EQ(step(), "round 1 restart 1: node1 node2 node3");
}

TEST_F(Decide, RestartsAreCountedOverRounds) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  const Reason reasons[] = {Reason::kWorkerFailed, Reason::kNodesWaiting, Reason::kWorkerFailed};
  const int counts[] = {1, 1, 2};
  (void)step();
  for (int i = 0; i < 3; ++i) {
    end_round(reasons[i]);
    for (const auto id : {0, 1, 2}) tell(Kind::kReady, id);
    (void)step();
    EXPECT_EQ(state_.round->restart_count, counts[i]);
    EXPECT_EQ(state_.round->max_restarts, 3);
  }
}

TEST_F(Decide, TheJobIsFinishedWhenAllNodesAre) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  tell(Kind::kDone, 0);
  tell(Kind::kDone, 2);
  EXPECT_EQ(step(), "wait: round 0 runs on 3 nodes");
  tell(Kind::kDone, 1);
  EXPECT_EQ(step(), "over, job ends: every worker has ended with 0");
  EXPECT_EQ(state_.over->reason, Reason::kFinished);
  EXPECT_EQ(step(), "wait: the job has ended: every worker has ended with 0");
}

TEST_F(Decide, ANodeThatIsLostWhenAllOthersAreDoneIsAFailure) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  tell(Kind::kDone, 0);
  tell(Kind::kDone, 2);
  state_.nodes[1].is_silent = true;
  EXPECT_EQ(step(),
            "over, job ends: node1 gave no sign of life for 15.0 s and may not have finished its work; the workers of "
            "the other 2 "
            "nodes have ended with 0");
  EXPECT_EQ(state_.over->reason, Reason::kNodeLost);
  EXPECT_EQ(state_.over->id, 1);
}

TEST_F(Decide, ANodeThatLeftWhenAllOthersAreDoneIsAFailure) {
  begin_static_round_of_two();
  tell(Kind::kDone, 0);
  tell(Kind::kGone, 1);
  EXPECT_EQ(step(),
            "over, job ends: node1 has left and may not have finished its work; the workers of the other node have "
            "ended with 0");
  EXPECT_EQ(state_.over->reason, Reason::kNodeLeft);
}

TEST_F(Decide, ANodeThatIsLostWhenItsWorkersHadEndedMatters) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  for (const auto id : {0, 1, 2}) tell(Kind::kDone, id);
  state_.nodes[1].is_silent = true;
  EXPECT_EQ(step(), "over, job ends: every worker has ended with 0");
}

TEST_F(Decide, ANodeLostBeforeOthersAreDoneEndsTheRound) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  tell(Kind::kDone, 0);
  state_.nodes[1].is_silent = true;
  EXPECT_EQ(step(), "over: node1 gave no sign of life for 15.0 s");
}

TEST_F(Decide, ANodeThatLeftWithoutEndingTheRoundIsNoticed) {
  for (const auto* host : {"node0", "node1", "node2"}) come(host);
  (void)step();
  tell(Kind::kGone, 1);
  EXPECT_EQ(step(), "over: node1 has left");
  EXPECT_EQ(state_.over->reason, Reason::kNodeLeft);
}

TEST_F(Decide, NamesTellNodesOfOneHostApart) {
  come("node0");
  settings_.min_nodes = 3;
  Member member = state_.nodes[0].member;
  member.node.pid = 200;
  state_.take(Notice{Kind::kCome, -1, 0, "", member}, next_place_++);
  EXPECT_EQ(step(), "wait: 2 of 3 nodes have arrived (node0 (pid 100), node0 (pid 200)); waiting for 1 more");
}

TEST_F(Decide, ManyNodesAreNotAllNamed) {
  settings_.min_nodes = settings_.max_nodes = 100;
  for (int i = 0; i < 11; ++i) come("n" + std::to_string(i));
  EXPECT_EQ(step(),
            "wait: 11 of 100 nodes have arrived (n0, n1, n2, n3, n4, n5, n6, n7, and 3 more); waiting for 89 more");
}

TEST_F(Decide, StaticRanksAreThoseGiven) {
  settings_.backend = Settings::Backend::kStatic;
  settings_.min_nodes = 3;
  come("node0", 2);
  come("node1", 0);
  EXPECT_EQ(step(), "wait: 2 of 3 nodes have arrived (node1, node0); waiting for --node-rank 1");
  come("node2", 1);
  EXPECT_EQ(step(), "round 0 restart 0: node1 node2 node0");
  end_round(Reason::kWorkerFailed);
  for (const auto id : {0, 1, 2}) tell(Kind::kReady, id);
  EXPECT_EQ(step(), "round 1 restart 1: node1 node2 node0");
}

TEST_F(Decide, StaticNodesAreNotReplaced) {
  begin_static_round_of_two();
  state_.nodes[1].is_silent = true;
  EXPECT_EQ(step(), "over, job ends: node1 gave no sign of life for 15.0 s; the static rendezvous replaces no nodes");
}

// Every order in which three nodes come, are done or are lost: a job ends once, and never while a living node works.
TEST_F(Decide, EveryOrderOfEndsIsSound) {
  std::vector<int> fate(3);
  for (int code = 0; code < 27; ++code) {
    for (int i = 0, rest = code; i < 3; ++i, rest /= 3) fate[static_cast<size_t>(i)] = rest % 3;  // works, done, lost
    state_ = State();
    next_place_ = 0;
    for (const auto* host : {"node0", "node1", "node2"}) come(host);
    (void)step();
    int counts[3] = {};
    for (int i = 0; i < 3; ++i) {
      ++counts[fate[static_cast<size_t>(i)]];
      if (fate[static_cast<size_t>(i)] == 1) tell(Kind::kDone, i);
      if (fate[static_cast<size_t>(i)] == 2) state_.nodes[i].is_silent = true;
    }
    const auto decision = decide_now();
    const auto* over = decision.news ? &std::get<OverRecord>(*decision.news) : nullptr;
    EXPECT_EQ(over != nullptr, counts[2] > 0 || counts[1] == 3) << code;
    EXPECT_EQ(over && over->job_ends, counts[0] == 0 && counts[1] > 0) << code;
    EXPECT_EQ(over && over->reason == Reason::kFinished, counts[1] == 3) << code;
  }
}

class OrderByRank : public ::testing::Test {
 protected:
  static Member member(NodeId id, const std::string& name, int pid) {
    Member member;
    member.id = id;
    member.sort_name = name;
    member.node.pid = pid;
    return member;
  }
  static std::string ids(const std::vector<Member>& members) {
    std::string text;
    for (const auto& each : members) text += std::to_string(each.id) + " ";
    return text;
  }
};

TEST_F(OrderByRank, ByNameThenPidThenArrival) {
  const std::vector<Member> members = {member(0, "b", 9), member(1, "a", 10), member(2, "a", 9), member(3, "a", 9)};
  EXPECT_EQ(ids(order_by_rank(members, std::nullopt, false)), "2 3 1 0 ");
}

TEST_F(OrderByRank, StableRanksKeepThePlacesOfThoseWhoStay) {
  RoundRecord before;
  before.members = {member(0, "b", 1), member(1, "c", 1), member(2, "d", 1)};
  const std::vector<Member> members = {member(2, "d", 1), member(0, "b", 1), member(3, "a", 1)};
  EXPECT_EQ(ids(order_by_rank(members, before, false)), "3 0 2 ");
  EXPECT_EQ(ids(order_by_rank(members, before, true)), "0 3 2 ");
}

TEST_F(OrderByRank, StableRanksMoveUpWhenThereAreFewer) {
  RoundRecord before;
  before.members = {member(0, "a", 1), member(1, "b", 1), member(2, "c", 1)};
  EXPECT_EQ(ids(order_by_rank({member(1, "b", 1), member(2, "c", 1)}, before, true)), "2 1 ");
}

TEST(ReplaceLoopbackAddresses, TakesWhatOthersReachedTheStoreBy) {
  std::vector<Member> members(3);
  members[0].node.address = "127.0.0.1";
  members[0].store_address = "127.0.0.1";
  members[1].node.address = "10.0.0.2";
  members[1].store_address = "10.0.0.1";
  members[2].node.address = "::1";
  replace_loopback_addresses(&members);
  EXPECT_EQ(members[0].node.address, "10.0.0.1");
  EXPECT_EQ(members[1].node.address, "10.0.0.2");
  EXPECT_EQ(members[2].node.address, "10.0.0.1");
}

TEST(ReplaceLoopbackAddresses, LeavesNodesOfOneHostAlone) {
  std::vector<Member> members(2);
  for (auto& member : members) member.node.address = member.store_address = "127.0.0.1";
  replace_loopback_addresses(&members);
  EXPECT_EQ(members[0].node.address, "127.0.0.1");
}

}  // namespace
}  // namespace cohort::rendezvous
