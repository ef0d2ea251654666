// Several nodes in one process, over real sockets on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "cohort/base/net/port.h"
#include "cohort/base/system/env.h"
#include "cohort/rendezvous/rounds/records.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/tcp_server.h"
#include "tests/rendezvous/nodes.h"
#include "tests/rendezvous/played_leader.h"

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
    flags.conf = "join_timeout=60,last_call_timeout=0.2,keep_alive_interval=0.1,keep_alive_max_attempt=100" + conf;
    return parse_settings(flags, {.max_restarts = 1}).value();
  }

  std::unique_ptr<store::TcpClient> client() {
    store::TcpClientOptions options;
    options.port = port_.port;
    return store::TcpClient::connect(options).value();
  }
  void await_key(const std::string& key) { ASSERT_TRUE(client()->wait({key}, kHang)); }

  const base::PortReservation port_ = base::reserve_port().value();
};

TEST_F(Meeting, TwoNodesMeetFailRestartAndFinish) {
  TestNode a(settings("2"));
  await_key("cohort/job/notice/0");
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

// As an agent that was stopped does. A host that waits for it without a word would seem to hang.
TEST_F(Meeting, TheHostSaysForWhomItWaitsAtTheEnd) {
  TestNode a(settings("1", ",keep_alive_interval=40,close_timeout=2"));
  (void)a.next();
  const auto other = client();
  a->report_success();
  (void)a.next();
  testing::internal::CaptureStderr();
  a.destroy();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: the job is over, but others are still connected to the rendezvous at 127.0.0.1:" +
                std::to_string(port_.port) + ", which ends with this process; waiting for them, for 2.0 s at most\n");
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

  PlayedLeader lead(const std::string& host) { return {port_.port, host, kHang}; }

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

// Its node follows news, and reads no notices: without a leader it would wait for ever.
TEST_F(MeetingAtAStore, RubbishThatTheLeaderReadsIsAnError) {
  TestNode a(guest("2"));
  await_key("cohort/job/why");
  const auto place = client()->add("cohort/job/notices", 1).value() - 1;
  ASSERT_TRUE(client()->set("cohort/job/notice/" + std::to_string(place), "rubbish"));
  EXPECT_THAT(describe(a.next()),
              ::testing::StartsWith(
                  "error: the rendezvous' store has an entry that this program does not understand: rubbish\n"));
}

// As written by a node 0 that is slow to host the workers' store, while who leads changes.
TEST_F(MeetingAtAStore, ANewLeaderDoesNotMakeANodeForgetTheRoundItWaitsFor) {
  auto slow = lead("slow");
  TestNode a(guest("2", ",keep_alive_interval=0.3,keep_alive_max_attempt=400"));
  slow.say("news/1", News(RoundRecord{0, 0, 1, {slow.self, slow.arrived(1)}}));
  slow.say("news/2", News(LeadRecord{1, -1}));
  await_key("cohort/job/why");  // it leads
  slow.say("workers/0", WorkersPlace{"127.0.0.1", 1, true});
  EXPECT_EQ(describe(a.next()), "round 0 of 2 nodes, restart 0 of 1, as node 1");
}

// A node 0 that leads and was killed: its sign of life stays what it is.
TEST_F(MeetingAtAStore, ALeaderThatFallsSilentIsFollowedByAnother) {
  const auto killed = lead("killed");
  TestNode a(guest("1:2", ",keep_alive_max_attempt=5"));
  EXPECT_EQ(describe(a.next()), "round 0 of 1 nodes, restart 0 of 1, as node 0");
}

// A spare sees a round begin, or comes while it runs.
TEST_F(MeetingAtAStore, BesideAFullRoundNodesWaitForAsLongAsItRuns) {
  auto first = lead("first");
  auto second = first.self;
  second.id = 9;
  TestNode early(guest("2", ",join_timeout=1"));
  const auto of_early = first.arrived(1);
  first.say("news/1", News(RoundRecord{0, 0, 1, {first.self, second}}));
  TestNode late(guest("2", ",join_timeout=1"));
  const auto of_late = first.arrived(2);
  EXPECT_EQ(describe(late.next(1100ms)), "nothing");
  // Both leave, and what comes next is there at once.
  first.say("news/3", News(RoundRecord{1, 0, 1, {of_early, of_late}}));
  first.say("news/2", News(OverRecord{0, RoundOver::Reason::kNodeLeft, "they left", 0, false}));
  EXPECT_EQ(describe(early.next()), "round 1 of 2 nodes, restart 0 of 1, as node 0");
  EXPECT_EQ(describe(late.next()), "round 1 of 2 nodes, restart 0 of 1, as node 1");
}

TEST_F(MeetingAtAStore, BesideARoundWithRoomNodesGiveUpMessage) {
  auto first = lead("first");
  ASSERT_TRUE(client()->set("cohort/job/why", "a round of 1 node runs"));
  first.say("news/1", News(RoundRecord{0, 0, 1, {first.self}}));
  TestNode late(guest("1:2", ",join_timeout=1"));
  EXPECT_EQ(describe(late.next()), "error: the rendezvous \"job\" at 127.0.0.1:" + std::to_string(port_.port) +
                                       " was not complete within 1.0 s\n  caused by: a round of 1 node runs");
}

TEST_F(MeetingAtAStore, AnotherTokenIsAnErrorAtOnce) {
  server_.reset();
  server_ = store::TcpServer::start({.host = "127.0.0.1", .port = port_.port, .token = "right"}).value();
  const auto start = [this](const std::string& conf) {
    base::set_env("COHORT_TOKEN", "wrong");
    auto node = std::make_unique<TestNode>(settings("2", conf));
    base::unset_env("COHORT_TOKEN");
    return describe(node->next());
  };
  const auto message = "error: refused: the store on 127.0.0.1:" + std::to_string(port_.port) +
                       " has another token than this process\n  hint: give every process of the job the same token";
  EXPECT_EQ(start(",is_host=0"), message);
  EXPECT_EQ(start(""), message) << "it would host, had another not taken the port";
}

// A listener that ends every connection at once is knocked at ten times a second, not as fast as a processor can.
TEST_F(Meeting, AStrangerAtTheEndpointIsNotHammered) {
  auto listeners = store::listen_on("127.0.0.1", port_.port).value();
  std::atomic<bool> stops = false;
  int num_knocks = 0;
  std::thread stranger([&] {
    while (!stops) {
      pollfd poll_fd{listeners[0].socket.get(), POLLIN, 0};
      if (::poll(&poll_fd, 1, 10) > 0 && base::Fd(::accept(poll_fd.fd, nullptr, nullptr))) ++num_knocks;
    }
  });
  TestNode node(settings("2", ",is_host=0,join_timeout=3"));
  const auto said = describe(node.next());
  stops = true;
  stranger.join();
  EXPECT_THAT(said, ::testing::HasSubstr(" is not a store\n"));
  EXPECT_LE(num_knocks, 40);
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

TEST(StandaloneRendezvous, TheVariableChoosesTheFamily) {
  base::set_env("COHORT_IP_FAMILY", "6");
  {
    TestNode node(parse_settings({}).value());
    const auto event = node.next();
    EXPECT_EQ(std::get<Round>(*event).store_address, "::1");
  }
  base::set_env("COHORT_IP_FAMILY", "5");
  const auto refused = Rendezvous::start(parse_settings({}).value());
  base::unset_env("COHORT_IP_FAMILY");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "environment variable COHORT_IP_FAMILY=\"5\" must be 4 or 6");
}

TEST(StandaloneRendezvous, RestartsAsOftenAsItMay) {
  TestNode node(parse_settings({}, {.max_restarts = 1}).value());
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
