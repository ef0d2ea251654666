// EtcdStore with a real etcd that is killed, answers that get lost, and leases that end.
#include "cohort/store/etcd/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cohort/base/text/text.h"
#include "cohort/store/etcd/etcd_client.h"
#include "cohort/store/etcd/etcd_keys.h"
#include "cohort/store/tls/base64.h"
#include "tests/store/etcd_server.h"
#include "tests/store/lossy_relay.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class EtcdStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdServer::is_installed()) GTEST_SKIP() << EtcdServer::kSkipReason;
    etcd_ = std::make_unique<EtcdServer>();
  }

  EtcdStoreOptions options(const std::string& job = "job") const {
    return {.port = etcd_->port(), .job = job, .timeout = kHangLimit, .retry_time = kHangLimit};
  }
  static std::unique_ptr<EtcdStore> connect(const EtcdStoreOptions& options) {
    auto store = EtcdStore::connect(options);
    if (!store) throw std::runtime_error(store.error().describe());
    return std::move(*store);
  }
  long long num_leases() const {
    EtcdClient client({.host = "127.0.0.1", .port = etcd_->port()});
    return static_cast<long long>(
        list_at(client.call("/v3/lease/leases", nlohmann::json::object()).value(), "leases").size());
  }
  void wait_until_empty() const {
    const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
    while (etcd_->num_keys() > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kAWhile);
    EXPECT_EQ(etcd_->num_keys(), 0);
  }

  std::unique_ptr<EtcdServer> etcd_;
};

TEST_F(EtcdStoreTest, JobsAreApartAndShareNoLease) {
  const auto a = connect(options("a"));
  const auto b = connect(options("b"));
  const auto second = connect(options("a"));
  ASSERT_TRUE(a->set("k", "1").ok());
  EXPECT_FALSE(*b->check({"k"}));
  EXPECT_EQ(*second->get("k"), "1");
  EXPECT_EQ(num_leases(), 2);
  ASSERT_TRUE(a->remove_all().ok());
  EXPECT_EQ(num_leases(), 1);
  EXPECT_FALSE(*second->check({"k"}));
}

// All the while clients change things; what they were told is true in the end.
TEST_F(EtcdStoreTest, ARestartOfEtcdGoesUnnoticed) {
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> added = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, store = connect(options())] {
      while (!is_over) {
        const auto sum = store->add("sum", 1);
        ASSERT_TRUE(sum.ok()) << sum.error().describe();
        ASSERT_TRUE(store->append("text", "x").ok());
        ++added;
      }
    });
  }
  for (int run = 0; run < 3; ++run) {
    std::this_thread::sleep_for(3 * kAWhile);
    etcd_->stop();
    std::this_thread::sleep_for(kAWhile);
    etcd_->start();
  }
  is_over = true;
  for (auto& thread : threads) thread.join();
  const auto store = connect(options());
  EXPECT_GT(added, 0);
  EXPECT_EQ(*store->get("sum"), std::to_string(added));
  EXPECT_EQ(store->get("text")->size(), static_cast<size_t>(added));
}

// The relay swallows every third answer: etcd has acted, the client cannot know.
TEST_F(EtcdStoreTest, AChangeWhoseAnswerIsLostIsMadeOnce) {
  // Every second answer: a change is a question and a transaction, and whichever is lost first, so is the other soon.
  const LossyRelay relay(etcd_->port(), 2);
  auto through_relay = options();
  through_relay.port = relay.port();
  const auto store = connect(through_relay);
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(*store->add("sum", 1), i);
    ASSERT_TRUE(store->append("text", "x").ok());
    EXPECT_EQ(*store->compare_set("turn", i == 1 ? "" : std::to_string(i - 1), std::to_string(i)), std::to_string(i));
    ASSERT_TRUE(store->queue_push("q", std::to_string(i)).ok());
    ASSERT_TRUE(store->set("gone", "1").ok());
    EXPECT_TRUE(*store->delete_key("gone"));
  }
  EXPECT_EQ(*store->get("text"), std::string(20, 'x'));
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(*store->queue_pop("q", false), std::to_string(i));
  EXPECT_EQ(*store->queue_len("q"), 0);
  EXPECT_GT(relay.num_lost(), 20);
}

TEST_F(EtcdStoreTest, ADeadJobLeavesNothing) {
  auto brief = options();
  brief.time_to_live = seconds(4);
  auto store = connect(brief);
  auto other = connect(brief);
  ASSERT_TRUE(store->set("k", "1").ok());
  ASSERT_TRUE(store->queue_push("q", "1").ok());
  EXPECT_EQ(num_leases(), 1);
  store.reset();
  // One that lives is enough.
  std::this_thread::sleep_for(seconds(7));
  EXPECT_EQ(*other->get("k"), "1");
  other.reset();
  wait_until_empty();
  EXPECT_EQ(num_leases(), 0);
}

TEST_F(EtcdStoreTest, AJobWhoseLeaseHasEndedBeginsAnewMessage) {
  const auto store = connect(options());
  const auto clone = store->clone().value();
  ASSERT_TRUE(store->set("k", "1").ok());
  ASSERT_TRUE(connect(options())->remove_all().ok());  // somebody else
  EXPECT_FALSE(*store->check({"k"}));
  testing::internal::CaptureStderr();
  ASSERT_TRUE(store->set("k", "2").ok());
  EXPECT_EQ(*clone->add("n", 1), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: what this job had in etcd is gone: nobody renewed its lease for 60 s\n");
  EXPECT_EQ(*clone->get("k"), "2");
  EXPECT_EQ(num_leases(), 1);
}

TEST_F(EtcdStoreTest, AnEtcdThatIsAwayIsNamedMessage) {
  auto impatient = options();
  impatient.retry_time = 10 * kAWhile;
  const auto store = connect(impatient);
  etcd_->stop();
  const auto where = "127.0.0.1:" + std::to_string(etcd_->port());
  EXPECT_THAT(store->set("k", "1").error().describe(),
              testing::MatchesRegex(
                  "etcd on " + where + " gave no answer for 1.0 s\n  caused by: cannot connect to " + where +
                  " within [0-9.]+ m?s\n  caused by: " + where +
                  ": Connection refused \\(ECONNREFUSED\\)\n  hint: "
                  "see whether etcd runs, and whether a majority of its members does\n  hint: see whether .*"));
  EXPECT_THAT(
      EtcdStore::connect(impatient).error().describe(),
      HasSubstr("cannot open the store in etcd\n  caused by: etcd on " + where + " gave no answer for 1.0 s\n"));
  etcd_->start();
  EXPECT_TRUE(store->set("k", "1").ok());
}

TEST_F(EtcdStoreTest, WhatEtcdRefusesIsToldMessage) {
  const auto store = connect(options());
  EXPECT_EQ(store->set("k", std::string(1'700'000, 'x')).error().describe(),
            "etcd on 127.0.0.1:" + std::to_string(etcd_->port()) +
                " refuses a request\n  caused by: etcdserver: request is too large");
  EXPECT_TRUE(store->set("k", "1").ok());
}

TEST(EtcdStore, ArgumentsThatCannotWorkMessage) {
  EXPECT_EQ(EtcdStore::connect({.host = "http://etcd.example", .job = "job", .tls = TlsOptions{}}).error().describe(),
            "etcd's endpoint begins with http://, but the certificates need https://");
  EXPECT_EQ(EtcdStore::connect({}).error().describe(), "a store in etcd needs the name of a job");
}

// Whatever answers, it is an error, soon.
TEST(EtcdStore, AServerThatIsNoEtcdMessage) {
  const auto error_of = [](const std::string& answer) {
    const LossyRelay server(answer);
    EtcdClient client({.host = "127.0.0.1", .port = server.port(), .retry_time = std::chrono::seconds(2)});
    const auto result = client.call("/v3/kv/range", one_key("k"));
    return base::replace_all(result.error().describe(), std::to_string(server.port()), "PORT");
  };
  EXPECT_EQ(error_of("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found"),
            "etcd on 127.0.0.1:PORT refuses a request\n  caused by: it answers with HTTP status 404 and no JSON\n  "
            "hint: see whether "
            "an etcd 3.4 or later runs there");
  EXPECT_THAT(error_of("SSH-2.0-OpenSSH_9.2\r\n"), HasSubstr("caused by: its answer is not HTTP: "));
  EXPECT_THAT(error_of(""), HasSubstr("caused by: it has closed the connection"));
  EXPECT_THAT(error_of("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx"),
              HasSubstr("caused by: its answer is not HTTP: "));
  EXPECT_THAT(error_of("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), HasSubstr("gave no answer for 2.0 s"));
  EXPECT_THAT(error_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"), HasSubstr("HTTP status 200 and no JSON"));
}

TEST(EtcdStore, FieldsOfOtherTypesAreAsIfTheyWereNotThere) {
  const auto answer = nlohmann::json::parse(R"({"a": "12", "b": 3, "c": [1], "d": true, "e": "x*"})");
  EXPECT_EQ(number_at(answer, "a"), 12);
  EXPECT_EQ(number_at(answer, "b"), 3);
  EXPECT_EQ(number_at(answer, "c"), 0);
  EXPECT_EQ(number_at(answer, "none"), 0);
  EXPECT_EQ(text_at(answer, "b"), "");
  EXPECT_EQ(bytes_at(answer, "e"), "");
  EXPECT_FALSE(is_true_at(answer, "a"));
  EXPECT_TRUE(is_true_at(answer, "d"));
  EXPECT_TRUE(list_at(answer, "a").empty());
}

// RFC 4648.
TEST(EtcdStore, Base64IsThatOfTheStandard) {
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe", "//4="}}) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(*from_base64(text), bytes);
  }
  EXPECT_EQ(from_base64("Zg="), std::nullopt);
  for (const auto* text : {"Zg=!", "Z===", "====", "=Zg=", "Zm=9", " Zg=", "Zg==\n", "Zm9vZg=", "Z-9v"}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cohort::store
