// TcpClient and TcpServer together, and a server among clients that mean it no good.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "tests/store/server_test.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class TcpStoreTest : public ServerTest {
 protected:
  void wait_for_num_clients(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
    while (server_->num_clients() != count && std::chrono::steady_clock::now() < deadline) usleep(1000);
    ASSERT_EQ(server_->num_clients(), count);
  }
};

TEST_F(TcpStoreTest, EveryOperationGivesWhatPyTorchsDoes) {
  const auto a = connect();
  ASSERT_TRUE(a->set("k", std::string("v\0w", 3)).ok());
  EXPECT_EQ(*a->get("k"), std::string("v\0w", 3));
  EXPECT_EQ(*a->add("n", 3), 3);
  EXPECT_EQ(*a->add("n", -5), -2);
  EXPECT_EQ(*a->compare_set("c", "", "x"), "x");
  EXPECT_EQ(*a->compare_set("c", "y", "z"), "x");
  EXPECT_TRUE(*a->check({"k", "n"}));
  EXPECT_FALSE(*a->check({"k", "none"}));
  EXPECT_EQ(*a->num_keys(), 3);
  EXPECT_TRUE(*a->delete_key("k"));
  EXPECT_FALSE(*a->delete_key("k"));
  ASSERT_TRUE(a->append("l", "1").ok());
  ASSERT_TRUE(a->append("l", "2").ok());
  ASSERT_TRUE(a->multi_set({"p", "q"}, {"1", ""}).ok());
  EXPECT_THAT(*a->multi_get({"q", "l", "p"}), ElementsAre("", "12", "1"));
  ASSERT_TRUE(a->queue_push("queue", "1").ok());
  EXPECT_EQ(*a->queue_len("queue"), 1);
  EXPECT_EQ(*a->queue_pop("queue", true), "1");
  EXPECT_EQ(*a->queue_pop("queue", false), std::nullopt);
  EXPECT_THAT(*a->list_keys(), UnorderedElementsAre("n", "c", "l", "p", "q"));
  EXPECT_TRUE(a->barrier("b", 1, kHangLimit).ok());
  const std::string large(5'000'000, 'x');
  ASSERT_TRUE(a->set("large", large).ok());
  EXPECT_EQ(*a->get("large"), large);
}

TEST_F(TcpStoreTest, WaitersAreWokenByOtherClients) {
  const auto a = connect();
  const auto b = connect();
  std::thread other([&] {
    usleep(50'000);
    ASSERT_TRUE(b->set("later", "1").ok());
    ASSERT_TRUE(b->queue_push("queue", "2").ok());
    ASSERT_TRUE(b->barrier("both", 2, kHangLimit).ok());
  });
  EXPECT_EQ(*a->get("later"), "1");
  EXPECT_EQ(*a->queue_pop("queue", true), "2");
  EXPECT_TRUE(a->barrier("both", 2, kHangLimit).ok());
  other.join();
}

TEST_F(TcpStoreTest, AWaitEndsWithPyTorchsTextAndTheConnectionGoesOnMessage) {
  const auto a = connect();
  EXPECT_EQ(a->wait({"x", "y"}, kAWhile).error().describe(), "wait timeout after 100ms, keys: x, y");
  EXPECT_EQ(a->barrier("b", 2, kAWhile).error().describe(), "barrier timeout after 100ms, key: b");
  a->set_timeout(kAWhile);
  EXPECT_EQ(a->get("x").error().describe(), "wait timeout after 100ms, keys: x");
  ASSERT_TRUE(a->set("x", "1").ok());
  EXPECT_EQ(*a->get("x"), "1");
}

TEST_F(TcpStoreTest, ALostServerIsNamedMessage) {
  const auto a = connect();
  const auto port = std::to_string(server_->port());
  server_.reset();
  EXPECT_THAT(a->get("x").error().describe(), HasSubstr("the store on 127.0.0.1:" + port + " is lost: "));
  EXPECT_EQ(a->add("x", 1).error().describe(),
            "the store on 127.0.0.1:" + port +
                " is lost: an earlier operation failed\n  hint: see whether the process that hosts it has ended");
  const auto late = TcpClient::connect({.port = std::stoi(port), .timeout = kAWhile});
  EXPECT_EQ(
      late.error().describe(),
      "cannot connect to 127.0.0.1:" + port + " within 100 ms\n  caused by: 127.0.0.1:" + port +
          ": Connection refused (ECONNREFUSED)\n  hint: see whether the store runs there, and whether a firewall or "
          "another address family is in the way");
}

// As a stopped server: the kernel takes in what fits, and nobody reads it.
TEST(TcpClient, AServerThatTakesNothingInMessage) {
  const auto listener = std::move(listen_on("127.0.0.1", 0).value().front());
  fcntl(listener.socket.get(), F_SETFL, 0);  // blocks
  std::promise<void> is_over;
  std::thread server([&] {
    const base::Fd client(accept(listener.socket.get(), nullptr, nullptr));
    char greeting[10];  // validate and its number, ping and its nonce
    EXPECT_EQ(recv(client.get(), greeting, sizeof(greeting), MSG_WAITALL), 10);
    EXPECT_EQ(send(client.get(), greeting + 6, 4, 0), 4);
    is_over.get_future().wait();
  });
  auto client = TcpClient::connect({.port = listener.port, .timeout = kHangLimit, .answer_timeout = seconds(2)});
  const auto error = client ? (*client)->set("k", std::string(64 << 20, 'v')).error() : client.error();
  EXPECT_EQ(error.describe(),
            "the store on 127.0.0.1:" + std::to_string(listener.port) +
                " is lost: it has accepted no data for 2.0 s\n  hint: see whether the process that hosts it has ended");
  is_over.set_value();
  server.join();
}

TEST_F(TcpStoreTest, ATakenPortNamesItsHolderMessage) {
  const auto second = TcpServer::start({.host = "127.0.0.1", .port = server_->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().describe(),
              testing::MatchesRegex(
                  "the store cannot start\n  caused by: cannot listen on 127.0.0.1:[0-9]+: Address already in "
                  "use \\(EADDRINUSE\\); it is held by process " +
                  std::to_string(getpid()) + " \\(.*\\)\n  hint: choose another port, or 0 for a free one"));
}

// Garbage, requests that never end, connections that say nothing: the others are served all the while.
TEST_F(TcpStoreTest, BadClientsDoNotDisturbTheOthers) {
  const auto good = connect();
  std::vector<base::Fd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(connect_raw());
  const auto begin = encode({.query = Query::kValidate, .keys = {}, .values = {}, .number = kMagic});
  for (int i = 0; i < 25; ++i) {
    ASSERT_EQ(send(silent[static_cast<size_t>(i)].get(), begin.data(), begin.size(), 0),
              static_cast<long>(begin.size()));
    ASSERT_EQ(send(silent[static_cast<size_t>(i)].get(), "\x01\x05", 2, 0), 2);
  }
  std::mt19937 random(3);
  for (int run = 0; run < 300; ++run) {
    const auto bad = connect_raw();
    auto bytes = run % 2 ? begin : std::string();
    for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<char>(random() % 3 ? random() % 20 : random()));
    send(bad.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (run % 10 == 0) {
      EXPECT_EQ(*good->add("count", 1), run / 10 + 1);
    }
  }
  wait_for_num_clients(51);
  EXPECT_EQ(*good->add("count", 1), 31);
}

// What clients say, in pieces of any size, with bytes changed, left out and cut off: nobody else notices, nothing stays behind.
TEST_F(TcpStoreTest, RequestsWithErrorsInThemDisturbNobody) {
  const auto good = connect();
  const auto request = [](Query query, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
                          int64_t n = 0) {
    return encode({query, std::move(keys), std::move(values), n});
  };
  const auto begin = request(Query::kValidate, {}, {}, kMagic);
  const std::vector<std::string> requests{request(Query::kPing, {}, {}, 7),
                                          request(Query::kSet, {"/bad"}, {"1"}),
                                          request(Query::kGet, {"/bad"}),
                                          request(Query::kAdd, {"/bad"}, {}, 1),
                                          request(Query::kCheck, {"/bad", "/no"}),
                                          request(Query::kWait, {"/no"}),
                                          request(Query::kCancelWait),
                                          request(Query::kMultiGet, {"/bad", "/b"}),
                                          request(Query::kMultiSet, {"/b"}, {"2"}),
                                          request(Query::kQueuePush, {"/q"}, {"1"}),
                                          request(Query::kQueuePop, {"/q"}),
                                          request(Query::kBarrier, {"/x"}, {}, 9),
                                          request(Query::kListKeys),
                                          request(Query::kChallenge),
                                          request(Query::kProve, {}, {"x"}),
                                          request(Query::kCompareSet, {"/bad"}, {"", "x"})};
  std::mt19937 random(11);
  for (int run = 0; run < 500; ++run) {
    auto bytes = begin;
    for (int i = 0; i < 10; ++i) bytes += requests[random() % requests.size()];
    for (auto changes = random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 2) bytes.erase(random() % bytes.size(), 1 + random() % 9);
    const auto bad = connect_raw();
    for (size_t at = 0; at < bytes.size();) {
      const auto size = std::min<size_t>(1 + random() % 40, bytes.size() - at);
      if (send(bad.get(), bytes.data() + at, size, MSG_NOSIGNAL) < 0) break;
      at += size;
    }
    if (run % 10 == 0) {
      ASSERT_EQ(*good->add("count", 1), run / 10 + 1);
    }
  }
  wait_for_num_clients(1);
  EXPECT_EQ(*good->add("count", 1), 51);
}

// A request of each, byte by byte, in turn; then half of them end in the middle of it.
TEST_F(TcpStoreTest, SlowClientsAreServedInTheEnd) {
  const auto good = connect();
  std::vector<base::Fd> slow;
  for (int i = 0; i < 100; ++i) slow.push_back(connect_raw());
  const auto bytes = encode({.query = Query::kValidate, .keys = {}, .values = {}, .number = kMagic}) +
                     encode({.query = Query::kAdd, .keys = {"/slow"}, .values = {}, .number = 1});
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (size_t k = 0; k < slow.size(); ++k) {
      if (k % 2 && i > bytes.size() / 2) slow[k].reset();
      if (!slow[k]) continue;
      ASSERT_EQ(send(slow[k].get(), &bytes[i], 1, MSG_NOSIGNAL), 1);
    }
    ASSERT_EQ(*good->add("count", 1), static_cast<int64_t>(i + 1));
  }
  for (size_t k = 0; k < slow.size(); k += 2) {
    char sum[8];
    ASSERT_EQ(recv(slow[k].get(), sum, sizeof(sum), MSG_WAITALL), 8);
  }
  EXPECT_EQ(*good->get("slow"), "50");
}

// Who asks for large values and does not take them is not asked for more, and costs a bounded amount of memory.
TEST_F(TcpStoreTest, AClientThatTakesNoAnswersIsNotServedFurther) {
  const auto good = connect();
  ASSERT_TRUE(good->set("large", std::string(4 << 20, 'x')).ok());
  ASSERT_TRUE(*good->check({"large"}));  // it has arrived
  const auto lazy = connect_raw();
  auto requests = encode({.query = Query::kValidate, .keys = {}, .values = {}, .number = kMagic});
  for (int i = 0; i < 1000; ++i)
    requests += encode({.query = Query::kGet, .keys = {"/large"}, .values = {}, .number = 0});
  ASSERT_EQ(send(lazy.get(), requests.data(), requests.size(), 0), static_cast<long>(requests.size()));
  // Its requests came first; all that the server does at once for them has been done when it answers others, twice.
  EXPECT_EQ(*good->add("n", 1), 1);
  EXPECT_EQ(*good->add("n", 1), 2);
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  EXPECT_LT(pages * sysconf(_SC_PAGESIZE), 512l << 20);  // 4 GB were asked for
  // What it takes after all is complete.
  std::string got(8 + (4 << 20), '\0');
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(recv(lazy.get(), got.data(), got.size(), MSG_WAITALL), static_cast<long>(got.size()));
    ASSERT_EQ(got.back(), 'x');
  }
}

constexpr size_t kMiB = 1 << 20;

// What one client has brought stays for the others, and they go on.
TEST_F(TcpStoreTest, AServerHoldsNoMoreThanItMayMessage) {
  server_ = std::move(*TcpServer::start({.host = "127.0.0.1", .max_bytes = 8 * kMiB}));
  const auto good = connect();
  ASSERT_TRUE(good->set("good", "1").ok());
  testing::internal::CaptureStderr();
  const auto greedy = connect();
  base::Result<void> set;
  for (int i = 0; i < 9 && set; ++i) {
    set = greedy->set("large" + std::to_string(i), std::string(kMiB, 'x'));
    if (set) set = greedy->check({"good"}) ? base::Result<void>() : base::Error("dropped");
  }
  EXPECT_FALSE(set.ok());
  wait_for_num_clients(1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(
                  R"(\[cohort\] warning: the store drops its client 127\.0\.0\.1:[0-9]+: the store may hold 8\.0 MiB )"
                  R"(and would hold 8\.0 MiB with this request; COHORT_STORE_MEMORY=MIB allows it more)"
                  "\n"));
  const auto value = good->get("good");
  ASSERT_TRUE(value.ok()) << value.error().describe();
  EXPECT_EQ(*value, "1");
  EXPECT_EQ(*good->get("large6"), std::string(kMiB, 'x'));
  EXPECT_FALSE(*good->check({"large7"})) << "what was refused was done";
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(*good->delete_key("large" + std::to_string(i))) << i;
  EXPECT_TRUE(connect()->set("again", std::string(4 * kMiB, 'x')).ok());
}

// Each of them is far below what one request may hold.
TEST_F(TcpStoreTest, RequestsThatAreNotCompleteCountTogether) {
  server_ = std::move(*TcpServer::start({.host = "127.0.0.1", .max_bytes = 8 * kMiB}));
  const auto good = connect();
  const auto request = encode({.query = Query::kValidate, .keys = {}, .values = {}, .number = kMagic}) +
                       encode({.query = Query::kSet, .keys = {"/k"}, .values = {std::string(kMiB, 'x')}, .number = 0});
  std::vector<base::Fd> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(connect_raw());
    send(clients.back().get(), request.data(), request.size() - 1, MSG_NOSIGNAL);  // all but the last byte
  }
  ASSERT_TRUE(connect()->check({"k"}).ok());  // who comes after them: all of them have been let in
  const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
  while (server_->num_clients() > 8 && std::chrono::steady_clock::now() < deadline) {
    ASSERT_TRUE(good->check({"k"}).ok());
  }
  EXPECT_LE(server_->num_clients(), 8u);
  clients.clear();
  wait_for_num_clients(1);
  ASSERT_TRUE(good->set("k", std::string(4 * kMiB, 'x')).ok());
  const auto value = good->get("k");
  ASSERT_TRUE(value.ok()) << value.error().describe();
  EXPECT_EQ(value->size(), 4 * kMiB);
}

TEST_F(TcpStoreTest, AppendsMakeNoValueLargerThanOthersMessage) {
  const auto good = connect();
  testing::internal::CaptureStderr();
  const auto client = connect();
  for (int i = 0; i < 9; ++i) (void)client->append("k", std::string(kMiB, 'x'));
  wait_for_num_clients(1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(
                  R"(\[cohort\] warning: the store drops its client 127\.0\.0\.1:[0-9]+: its append makes a value of )"
                  R"(9437184 bytes, 8388608 are allowed)"
                  "\n"));
  EXPECT_EQ(good->get("k")->size(), 8 * kMiB);
}

TEST_F(TcpStoreTest, GreetingsOfOthersMessage) {
  // Hears less than the pings' answers.
  const auto end_of = [this](const std::string& bytes, size_t num_pings = 1) {
    testing::internal::CaptureStderr();
    const auto client = connect_raw();
    const auto all = bytes + encode({.query = Query::kPing, .keys = {}, .values = {}, .number = 7});
    send(client.get(), all.data(), all.size(), MSG_NOSIGNAL);
    char echoes[8];
    EXPECT_LT(recv(client.get(), echoes, 4 * num_pings, MSG_WAITALL), static_cast<long>(4 * num_pings)) << bytes;
    return testing::internal::GetCapturedStderr();
  };
  const auto says = [](const std::string& why) {
    return testing::MatchesRegex(R"(\[cohort\] warning: the store drops its client 127\.0\.0\.1:[0-9]+: )" + why +
                                 "\n");
  };
  const auto request = [](Query query, int64_t number) {
    return encode({.query = query, .keys = {}, .values = {}, .number = number});
  };
  const auto* const stranger = "it does not speak the store's protocol";
  EXPECT_THAT(end_of(request(Query::kValidate, kMagic + 1)), says(stranger));
  EXPECT_THAT(end_of(request(Query::kPing, kMagic)), says(stranger));
  EXPECT_THAT(end_of(encode({.query = Query::kSet, .keys = {"/k"}, .values = {"1"}, .number = 0})), says(stranger));
  EXPECT_THAT(end_of("GET / HTTP/1.1\r\n\r\n"),
              says("a request that begins with byte 71 does not belong to the store's protocol"));
  EXPECT_THAT(end_of(greeting(7) + request(Query::kValidate, kMagic), 2),
              says("it sends the protocol's greeting twice"));
  EXPECT_EQ(*connect()->num_keys(), 0);
}

TEST_F(TcpStoreTest, ConnectionsThatEndAreForgotten) {
  {
    std::vector<std::unique_ptr<TcpClient>> clients;
    for (int i = 0; i < 20; ++i) clients.push_back(connect());
    wait_for_num_clients(20);
  }
  wait_for_num_clients(0);
}

TEST_F(TcpStoreTest, ManyThreadsCountTogether) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const auto client = connect();
      for (int k = 0; k < 200; ++k) ASSERT_TRUE(client->add("count", 1).ok());
      ASSERT_TRUE(client->barrier("done", 8, kHangLimit).ok());
      EXPECT_EQ(*client->add("count", 0), 1600) << i;
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace cohort::store
