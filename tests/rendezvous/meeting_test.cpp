// Several nodes in one process, over real sockets on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/port.h"
#include "cohort/store/tcp_client.h"
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
