// Several nodes in one process, over real sockets on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/base/env.h"
#include "cohort/base/port.h"
#include "cohort/store/tcp_client.h"
#include "cohort/store/tcp_server.h"
#include "tests/rendezvous/nodes.h"

namespace cohort::rendezvous {
namespace {

using namespace std::chrono_literals;

class Meeting : public ::testing::Test {
 protected:
  Settings settings(const std::string& num_nodes, const std::string& conf = "") {
    Flags flags;
    flags.num_nodes = num_nodes;
    flags.backend = "c10d";
    flags.endpoint = "127.0.0.1:" + std::to_string(port_.port);
    flags.run_id = "job";
    flags.conf = "join_timeout=60,last_call_timeout=0.2,keep_alive_interval=0.1,keep_alive_max_attempt=10" + conf;
    flags.max_restarts = 1;
    return parse_settings(flags).value();
  }

  const base::PortReservation port_ = base::reserve_port().value();
};

TEST_F(Meeting, TwoNodesMeetFailRestartAndFinish) {
  TestNode a(settings("2"));
  TestNode b(settings("2"));
  EXPECT_EQ(describe(a.next()), "round 0 of 2 nodes, restart 0 of 1, as node 0");
  const auto round = b.next();
  EXPECT_EQ(describe(round), "round 0 of 2 nodes, restart 0 of 1, as node 1");
  const auto first_port = std::get<Round>(*round).store_port;

  b->report_failure("rank 1 failed with exit code 3", true);
  EXPECT_EQ(describe(a.next()), "worker failed by node 1: rank 1 failed with exit code 3");
  EXPECT_EQ(describe(b.next()), "worker failed by node 1: rank 1 failed with exit code 3");
  a->join_next();
  b->join_next();
  EXPECT_EQ(describe(a.next()), "round 1 of 2 nodes, restart 1 of 1, as node 0");
  const auto second = b.next();
  EXPECT_EQ(describe(second), "round 1 of 2 nodes, restart 1 of 1, as node 1");
  EXPECT_NE(std::get<Round>(*second).store_port, first_port);

  a->report_success();
  EXPECT_EQ(describe(a.next(100ms)), "nothing");
  b->report_success();
  EXPECT_EQ(describe(a.next()), "finished by node -1, job ends: every worker has ended with 0");
  EXPECT_EQ(describe(b.next()), "finished by node -1, job ends: every worker has ended with 0");
}

TEST_F(Meeting, TheWorkersStoreAnswersAndIsEmpty) {
  TestNode a(settings("1:2"));
  const auto event = a.next();
  const auto& round = std::get<Round>(*event);
  store::TcpClientOptions options;
  options.host = round.store_address;
  options.port = round.store_port;
  auto client = store::TcpClient::connect(options);
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->num_keys().value(), 0);
  a->report_success();
  EXPECT_EQ(describe(a.next()), "finished by node -1, job ends: every worker has ended with 0");
}

TEST_F(Meeting, ALateNodeIsTakenInByANewRound) {
  TestNode a(settings("1:2"));
  EXPECT_EQ(describe(a.next()), "round 0 of 1 nodes, restart 0 of 1, as node 0");
  TestNode b(settings("1:2"));
  EXPECT_THAT(describe(a.next()), ::testing::HasSubstr("nodes waiting by node -1: "));
  a->join_next();
  EXPECT_EQ(describe(a.next()), "round 1 of 2 nodes, restart 0 of 1, as node 0");
  EXPECT_EQ(describe(b.next()), "round 1 of 2 nodes, restart 0 of 1, as node 1");
}

TEST_F(Meeting, StaticNodesHaveTheRanksTheyWereGiven) {
  Flags flags;
  flags.num_nodes = "2";
  flags.master_port = port_.port;
  flags.node_rank = 1;
  TestNode b(parse_settings(flags).value());
  flags.node_rank = 0;
  TestNode a(parse_settings(flags).value());
  EXPECT_EQ(describe(a.next()), "round 0 of 2 nodes, restart 0 of 0, as node 0");
  EXPECT_EQ(describe(b.next()), "round 0 of 2 nodes, restart 0 of 0, as node 1");
  b->report_failure("it broke", true);
  EXPECT_EQ(describe(a.next()), "worker failed by node 1, job ends: it broke");
}

// A store of its own, so that every node may go.
class MeetingAtAStore : public Meeting {
 protected:
  MeetingAtAStore() {
    store::TcpServerOptions options;
    options.host = "127.0.0.1";
    options.port = port_.port;
    server_ = store::TcpServer::start(options).value();
  }

  Settings guest(const std::string& num_nodes, const std::string& conf = "") {
    return settings(num_nodes, ",is_host=0" + conf);
  }
  std::unique_ptr<store::TcpClient> client() {
    store::TcpClientOptions options;
    options.port = port_.port;
    return store::TcpClient::connect(options).value();
  }
  void await_key(const std::string& key) { ASSERT_TRUE(client()->wait({key}, kHang)); }

  std::unique_ptr<store::TcpServer> server_;
};

// Longer than the test may take: nothing here may wait for a sign of life.
constexpr auto kSlow = ",keep_alive_interval=40,keep_alive_max_attempt=3";

TEST_F(MeetingAtAStore, ALeaderThatLeavesWhileOthersWaitHandsOver) {
  TestNode a(guest("2", kSlow));
  await_key("cohort/job/why");
  a->leave("it was stopped");
  TestNode b(guest("2", kSlow));
  TestNode c(guest("2", kSlow));
  EXPECT_EQ(describe(b.next()).substr(0, 20), "round 0 of 2 nodes, ");
  EXPECT_EQ(describe(c.next()).substr(0, 20), "round 0 of 2 nodes, ");
}

TEST_F(MeetingAtAStore, ALeaderThatLeavesARoundHandsOver) {
  TestNode a(guest("1:3", kSlow));
  EXPECT_EQ(describe(a.next()), "round 0 of 1 nodes, restart 0 of 1, as node 0");
  TestNode b(guest("1:3", kSlow));
  EXPECT_THAT(describe(a.next()), ::testing::HasSubstr("nodes waiting by node -1: "));
  a->leave("it was stopped");
  EXPECT_EQ(describe(b.next()), "round 1 of 1 nodes, restart 0 of 1, as node 0");
}

TEST_F(MeetingAtAStore, AGapInTheListOfNoticesIsClosed) {
  // As a node leaves it that dies between its two steps.
  ASSERT_EQ(client()->add("cohort/job/notices", 1).value(), 1);
  TestNode a(guest("2"));
  TestNode b(guest("2"));
  EXPECT_EQ(describe(a.next()).substr(0, 20), "round 0 of 2 nodes, ");
  EXPECT_EQ(describe(b.next()).substr(0, 20), "round 0 of 2 nodes, ");
}

TEST_F(MeetingAtAStore, RubbishInTheStoreIsAnError) {
  ASSERT_TRUE(client()->set("cohort/job/news/0", "rubbish"));
  TestNode a(guest("1"));
  EXPECT_THAT(describe(a.next()),
              ::testing::StartsWith(
                  "error: the rendezvous' store has an entry that this program does not understand: rubbish\n"));
}

TEST_F(MeetingAtAStore, TheFirstOfTwoFailuresIsTheReason) {
  TestNode a(guest("2"));
  TestNode b(guest("2"));
  const auto first = a.next();
  ASSERT_EQ(describe(first).substr(0, 20), "round 0 of 2 nodes, ");
  (void)b.next();
  a->report_failure("a broke", true);
  b->report_failure("b broke", true);
  const auto reason = describe(a.next());
  EXPECT_THAT(reason, ::testing::MatchesRegex("worker failed by node [01]: [ab] broke"));
  EXPECT_EQ(describe(b.next()), reason);
}

TEST_F(MeetingAtAStore, AStoreThatIsGoneIsAnErrorForEveryNode) {
  TestNode a(guest("2"));
  TestNode b(guest("2"));
  (void)a.next();
  (void)b.next();
  server_.reset();
  const auto message = "error: the rendezvous store at 127.0.0.1:" + std::to_string(port_.port) + " is gone\n";
  EXPECT_THAT(describe(a.next()), ::testing::StartsWith(message));
  EXPECT_THAT(describe(b.next()), ::testing::StartsWith(message));
  EXPECT_EQ(describe(a.next(50ms)), "nothing");
}

TEST_F(MeetingAtAStore, AWaitThatIsInterruptedEnds) {
  auto waiting = client();
  std::thread other([&] { waiting->interrupt(); });
  const auto waited = waiting->wait({"never"}, kHang);
  other.join();
  ASSERT_FALSE(waited);
  EXPECT_THAT(waited.error().message(), ::testing::EndsWith(" is lost: interrupted"));
}

TEST_F(Meeting, ANodeThatFindsNoStoreEndsAtOnce) {
  TestNode node(settings("2", ",is_host=0"));
  EXPECT_EQ(describe(node.next(50ms)), "nothing");
}

TEST_F(Meeting, StableRanksStayWhenANodeComes) {
  TestNode a(settings("1:2", ",stable_ranks=1"));
  (void)a.next();
  TestNode b(settings("1:2", ",stable_ranks=1"));
  (void)a.next();
  a->join_next();
  EXPECT_EQ(describe(a.next()), "round 1 of 2 nodes, restart 0 of 1, as node 0");
}

TEST(StandaloneRendezvous, TheVariableLeavesTheStoreToWorkerZero) {
  base::set_env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
  TestNode node(parse_settings({}).value());
  base::unset_env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  const auto event = node.next();
  const auto& round = std::get<Round>(*event);
  EXPECT_FALSE(round.agent_hosts_store);
  store::TcpServerOptions options;
  options.host = round.store_address;
  options.port = round.store_port;
  EXPECT_TRUE(store::TcpServer::start(options));
}

TEST(StandaloneRendezvous, RestartsAsOftenAsItMay) {
  Flags flags;
  flags.max_restarts = 1;
  TestNode node(parse_settings(flags).value());
  EXPECT_EQ(describe(node.next()), "round 0 of 1 nodes, restart 0 of 1, as node 0");
  node->report_failure("it broke", true);
  EXPECT_EQ(describe(node.next()), "worker failed by node 0: it broke");
  node->join_next();
  EXPECT_EQ(describe(node.next()), "round 1 of 1 nodes, restart 1 of 1, as node 0");
  node->report_failure("it broke again", true);
  EXPECT_EQ(describe(node.next()), "worker failed by node 0, job ends: it broke again");
}

}  // namespace
}  // namespace cohort::rendezvous
