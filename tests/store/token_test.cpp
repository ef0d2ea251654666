// The token: what proves it, where it comes from, and what a server does with clients that lack it.
#include "cohort/store/tcp/token.h"
#include "cohort/store/tls/key_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "cohort/base/system/env.h"
#include "cohort/store/stream/log_limit.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/tcp_server.h"
#include "cohort/store/tls/key_pair.h"
#include "tests/store/times.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
}

// What Python's hmac says to the same; processes of other releases of ours prove in this way.
TEST(StoreToken, AProofIsAnHmacOfSideAndNumbers) {
  std::string first(kNonceBytes, '\0');
  std::string second(kNonceBytes, '\0');
  for (size_t i = 0; i < kNonceBytes; ++i) {
    first[i] = static_cast<char>(i);
    second[i] = static_cast<char>(i + kNonceBytes);
  }
  EXPECT_EQ(hex(proof_of(Side::kClient, "right", first, second)),
            "69f3504ebfe1aef7b865ecd884c248501d7bd914bdef8ecd4ddccfddce5a7a3b");
  EXPECT_EQ(hex(proof_of(Side::kServer, std::string(131, 'k'), first, second)),
            "903c9597c2ed0ded56c1716a4ab7ef65d252fa085cd7db8a280ee56afbbad43d");
  EXPECT_EQ(proof_of(Side::kServer, "right", first, second).size(), kProofBytes);
}

TEST(StoreToken, ProofsAreComparedWhole) {
  EXPECT_TRUE(is_same_proof("abc", "abc"));
  EXPECT_FALSE(is_same_proof("abc", "abd"));
  EXPECT_FALSE(is_same_proof("abc", "ab"));
}

TEST(StoreToken, ProofsDifferBySideTokenAndNumbers) {
  EXPECT_NE(proof_of(Side::kClient, "t", "a", "b"), proof_of(Side::kServer, "t", "a", "b"));
  EXPECT_NE(proof_of(Side::kClient, "t", "a", "b"), proof_of(Side::kClient, "u", "a", "b"));
  EXPECT_NE(proof_of(Side::kClient, "t", "a", "b"), proof_of(Side::kClient, "t", "c", "b"));
  EXPECT_NE(random_nonce(), random_nonce());
}

TEST(StoreToken, FilesThatOthersReadAreRefusedMessage) {
  const test::TemporaryFolder folder;
  const auto path = folder / "token";
  std::ofstream(path) << "  secret words\n";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(*read_token_file(path), "secret words");
  EXPECT_EQ(*find_token(path), "secret words");
  chmod(path.c_str(), 0640);
  EXPECT_EQ(read_token_file(path).error().describe(),
            "the token file \"" + path + "\" can be read or written by other users\n  hint: chmod 600 " + path);
  EXPECT_EQ(find_token(folder / "none").error().describe(),
            "cannot open the token file \"" + folder / "none" + "\": No such file or directory (ENOENT)");
  EXPECT_EQ(read_token_file(folder.path()).error().describe(),
            "the token file \"" + folder.path() + "\" is not a regular file");
  const auto empty = folder / "empty";
  std::ofstream(empty) << "\n";
  chmod(empty.c_str(), 0600);
  EXPECT_EQ(read_token_file(empty).error().describe(), "the token file \"" + empty + "\" is empty");
  base::set_env("COHORT_TOKEN", "from the environment");
  EXPECT_EQ(*find_token(""), "from the environment");
  EXPECT_FALSE(find_token(folder / "none").ok());  // a file that is named counts alone
  base::unset_env("COHORT_TOKEN");
}

TEST(StoreToken, ALogLimitLetsTenLinesThroughThenOneASecond) {
  LogLimit limit;
  auto now = LogLimit::Clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limit.may_speak(now));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.may_speak(now));
  EXPECT_EQ(limit.num_left_out(), 5);
  now += std::chrono::milliseconds(1100);
  EXPECT_TRUE(limit.may_speak(now));
  EXPECT_EQ(limit.num_left_out(), 0);
  EXPECT_FALSE(limit.may_speak(now));
  now += std::chrono::hours(1);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limit.may_speak(now));
  EXPECT_FALSE(limit.may_speak(now));
}

class GuardedStoreTest : public ::testing::Test {
 protected:
  base::Result<std::unique_ptr<TcpClient>> connect(const std::string& token, int port = 0) {
    return TcpClient::connect({.port = port ? port : server_->port(), .timeout = kHangLimit, .token = token});
  }
  std::string where(int port = 0) const { return "127.0.0.1:" + std::to_string(port ? port : server_->port()); }

  std::unique_ptr<TcpServer> server_ = TcpServer::start({.host = "127.0.0.1", .token = "right"}).value();
};

TEST_F(GuardedStoreTest, AgentsKeysNeedTheTokenMessage) {
  const auto agent = connect("right").value();
  ASSERT_TRUE(agent->set("cohort/a", "1").ok());
  const auto refusal =
      "refused: keys under \"cohort/\" of the store on " + where() +
      " are for processes with its token\n"
      "  hint: set COHORT_TOKEN, or --rdzv-conf token_file=FILE, to the token that the store was started with";
  testing::internal::CaptureStderr();
  // Operations with an answer and without one; once refused, the client stays so.
  const auto other = connect("").value();
  EXPECT_EQ(other->set("cohort/a", "2").error().describe(), refusal);
  EXPECT_EQ(other->get("free").error().describe(), refusal);
  EXPECT_EQ(connect("").value()->append("cohort/a", "2").error().describe(), refusal);
  EXPECT_EQ(connect("").value()->add("cohort/n", 1).error().describe(), refusal);
  EXPECT_EQ(connect("").value()->check({"free", "cohort/a"}).error().describe(), refusal);
  EXPECT_EQ(connect("").value()->wait({"cohort/none"}, kHangLimit).error().describe(), refusal);
  EXPECT_EQ(connect("").value()->barrier("cohort/none", 1, kHangLimit).error().describe(), refusal);
  EXPECT_EQ(connect("").value()->queue_len("cohort/none").error().describe(), refusal);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(
                  "(\\[cohort\\] warning: the store drops its client 127.0.0.1:[0-9]+: its keys under cohort/ "
                  "need the token\n)+"));
  EXPECT_EQ(*agent->get("cohort/a"), "1");
}

TEST_F(GuardedStoreTest, OtherKeysAreFree) {
  const auto agent = connect("right").value();
  const auto worker = connect("").value();
  ASSERT_TRUE(agent->set("cohort/a", "1").ok());
  ASSERT_TRUE(worker->set("default_pg/0", "2").ok());
  ASSERT_TRUE(worker->set("cohort", "3").ok());
  EXPECT_EQ(*agent->get("default_pg/0"), "2");
  // The names of protected keys are nobody else's business either.
  EXPECT_THAT(*worker->list_keys(), UnorderedElementsAre("default_pg/0", "cohort"));
  EXPECT_EQ(*worker->num_keys(), 2);
  EXPECT_THAT(*agent->list_keys(), UnorderedElementsAre("default_pg/0", "cohort", "cohort/a"));
  EXPECT_EQ(*agent->num_keys(), 3);
  EXPECT_EQ(*agent->clone().value()->get("cohort/a"), "1");
}

// Who has listened to others has their numbers and proofs, and may guess.
TEST_F(GuardedStoreTest, AChallengeServesForOneTry) {
  const auto socket = connect_to("127.0.0.1", server_->port(), kHangLimit).value();
  const auto ask = [&](const std::string& request, size_t size) {
    EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<long>(request.size()));
    std::string answer(size, '?');
    EXPECT_EQ(recv(socket.get(), answer.data(), size, MSG_WAITALL), static_cast<long>(size));
    return answer;
  };
  const auto challenge = [&] {
    const auto answer = ask(encode({.query = Query::kChallenge, .keys = {}, .values = {}, .number = 0}), 33);
    EXPECT_EQ(answer[0], '\1');
    return answer.substr(1);
  };
  const auto try_value = [&](const std::string& value) {
    return ask(encode({.query = Query::kProve, .keys = {}, .values = {value}, .number = 0}), 33);
  };
  const std::string nonce(kNonceBytes, 'n');
  const auto right = [&](const std::string& server_nonce) {
    return nonce + proof_of(Side::kClient, "right", server_nonce, nonce);
  };
  const auto refused = std::string(1, kCanceled) + std::string(kProofBytes, '\0');
  testing::internal::CaptureStderr();
  ASSERT_EQ(ask(greeting(7), 4), std::string("\7\0\0\0", 4));
  EXPECT_EQ(try_value(right("")), refused) << "there was no challenge";
  const auto first = challenge();
  EXPECT_EQ(try_value("short"), refused);
  EXPECT_EQ(try_value(right(first)), refused) << "it is used up";
  challenge();
  EXPECT_EQ(try_value(right(first)), refused) << "of an earlier challenge";
  EXPECT_EQ(try_value(right(challenge()) + "x"), refused);
  const auto last = challenge();
  EXPECT_EQ(try_value(right(last)), kReady + proof_of(Side::kServer, "right", last, nonce));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("(\\[cohort\\] warning: the store refuses its client 127.0.0.1:[0-9]+: it has "
                                    "another token\n){5}"));
}

TEST_F(GuardedStoreTest, AnotherTokenIsRefusedMessage) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(connect("wrong").error().describe(), "refused: the store on " + where() +
                                                     " has another token than this process\n"
                                                     "  hint: give every process of the job the same token");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(
                  "\\[cohort\\] warning: the store refuses its client 127.0.0.1:[0-9]+: it has another token\n"));
  const auto open = TcpServer::start({.host = "127.0.0.1"}).value();
  EXPECT_EQ(connect("right", open->port()).error().describe(),
            "refused: this process has a token, the store on " + where(open->port()) +
                " has none\n"
                "  hint: give every process of the job the same token, or none");
  ASSERT_TRUE(connect("", open->port()).value()->set("cohort/a", "free where there is no token").ok());
}

TEST(KeyPair, TwoHaveASecretThatAThirdDoesNot) {
  const auto a = KeyPair::create().value();
  const auto b = KeyPair::create().value();
  const auto c = KeyPair::create().value();
  EXPECT_NE(a.public_key(), b.public_key());
  const auto secret = a.secret_with(b.public_key()).value();
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(b.secret_with(a.public_key()).value(), secret);
  EXPECT_NE(c.secret_with(a.public_key()).value(), secret);
  EXPECT_NE(c.secret_with(b.public_key()).value(), secret);
}

TEST(KeyPair, WhatIsNoPublicKeyIsAnErrorMessage) {
  const auto pair = KeyPair::create().value();
  // Zeros would give everyone the same secret.
  for (const std::string& text : {std::string(), std::string(31, 'x'), std::string(33, 'x'), std::string(32, '\0')}) {
    const auto secret = pair.secret_with(text);
    ASSERT_FALSE(secret) << text.size();
    EXPECT_EQ(secret.error().message(), "this is not a public key (X25519)");
  }
}

}  // namespace
}  // namespace cohort::store
