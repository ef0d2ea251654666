// Servers that answer what no store and no etcd would: an error each time, soon and with little memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "cohort/base/text/text.h"
#include "cohort/store/etcd/etcd_client.h"
#include "cohort/store/etcd/etcd_store.h"
#include "cohort/store/etcd/http_client.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/token.h"
#include "cohort/store/tls/base64.h"
#include "tests/store/scripted_stream.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kMiB = 1024 * 1024;

size_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

// A client, and the server's end of its connection.
struct Connected {
  std::unique_ptr<TcpClient> client;
  base::Fd server;
};

Connected connect_pair(const TcpClientOptions& options = {.timeout = kHangLimit}) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {TcpClient::on(base::Fd(ends[0]), options), base::Fd(ends[1])};
}

void say(const base::Fd& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto size = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

std::string sized(size_t size) {
  std::string bytes;
  put_number(&bytes, size, 8);
  return bytes;
}

TEST(HostileStore, WhatIsOnlyAnnouncedTakesNoMemory) {
  auto [client, server] = connect_pair();
  say(server, std::string(1, kReady) + sized(kMaxAnswerBytes) + "x");
  shutdown(server.get(), SHUT_WR);
  const auto before = most_memory();
  EXPECT_THAT(client->get("key").error().message(), HasSubstr("is lost: it has closed the connection"));
  EXPECT_LT(most_memory() - before, 64 * kMiB);
}

TEST(HostileStore, AListOfKeysHasAnEndMessage) {
  auto [client, server] = connect_pair();
  std::thread talker([&socket = server] {
    say(socket, sized(1000));
    const std::string key(32 * kMiB, 'k');
    for (int i = 0; i < 9; ++i) say(socket, sized(key.size()) + key);
  });
  EXPECT_THAT(client->list_keys().error().message(), HasSubstr("is lost: its keys take more than 268435456 bytes"));
  client.reset();
  talker.join();
}

TEST(HostileStore, LongValuesComeInWhole) {
  auto [client, server] = connect_pair();
  std::string value(3 * kMiB + 17, 'v');
  for (size_t i = 0; i < value.size(); i += 1000) value[i] = static_cast<char>(i / 1000);
  std::thread talker([&, &socket = server] { say(socket, std::string(1, kReady) + sized(value.size()) + value); });
  const auto got = client->get("key");
  talker.join();
  EXPECT_TRUE(got.ok() && *got == value);
}

const std::string kClosed = "it has closed the connection\n  hint: see whether the process that hosts it has ended";

// Returns the error of an operation whose server sends this answer and hangs up; "none" if it succeeds.
template <class Ask>
std::string error_after(std::string_view answer, const Ask& ask) {
  auto [client, server] = connect_pair();
  say(server, answer);
  shutdown(server.get(), SHUT_WR);
  const auto result = ask(*client);
  return result.ok() ? "none" : result.error().describe();
}

// Cuts the answer at every byte, as a server does that dies in the middle of it.
template <class Ask>
void expect_lost_at_every_byte(const std::string& answer, const Ask& ask) {
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_EQ(error_after(std::string_view(answer).substr(0, size), ask),
              "the store on 127.0.0.1:29500 is lost: " + kClosed)
        << "after " << size << " of " << answer.size() << " bytes";
  }
  EXPECT_EQ(error_after(answer, ask), "none");
}

TEST(HostileStore, AnswersThatBreakOffMessage) {
  const std::string ready(1, kReady);
  const auto text = sized(2) + "ab";
  expect_lost_at_every_byte(ready + text, [](TcpClient& client) { return client.get("k"); });
  expect_lost_at_every_byte(sized(7), [](TcpClient& client) { return client.add("k", 1); });
  expect_lost_at_every_byte(text, [](TcpClient& client) { return client.compare_set("k", "", "ab"); });
  expect_lost_at_every_byte(sized(1), [](TcpClient& client) { return client.delete_key("k"); });
  expect_lost_at_every_byte(ready, [](TcpClient& client) { return client.check({"k"}); });
  expect_lost_at_every_byte(ready, [](TcpClient& client) { return client.wait({"k"}, kHangLimit); });
  expect_lost_at_every_byte(ready, [](TcpClient& client) { return client.barrier("k", 2, kHangLimit); });
  expect_lost_at_every_byte(ready + text + text, [](TcpClient& client) { return client.multi_get({"k", "l"}); });
  expect_lost_at_every_byte(ready + sized(1) + text, [](TcpClient& client) { return client.queue_pop("k", true); });
  expect_lost_at_every_byte(sized(2) + text + text, [](TcpClient& client) { return client.list_keys(); });
}

// Nobody but a failed call says why it failed.
TEST(HostileStore, AnInterruptionOfLongAgoIsForgotten) {
  auto [client, server] = connect_pair({.timeout = kHangLimit, .answer_timeout = kAWhile});
  say(server, sized(7));
  errno = EINTR;
  const auto sum = client->add("k", 1);
  ASSERT_TRUE(sum.ok()) << sum.error().describe();
  EXPECT_EQ(*sum, 7);
}

// Returns the error of connecting with a token to a server that sends these bytes alone, whatever it receives.
std::string error_of_handshake(const std::string& bytes) {
  const auto listener = std::move(listen_on("127.0.0.1", 0).value().front());
  fcntl(listener.socket.get(), F_SETFL, 0);  // blocks
  std::thread server([&] {
    const base::Fd client(accept(listener.socket.get(), nullptr, nullptr));
    say(client, bytes);
    shutdown(client.get(), SHUT_WR);
    char unread[1024];
    while (recv(client.get(), unread, sizeof(unread), 0) > 0) continue;  // or the client would hear of a reset
  });
  const auto connect = [&] {
    const auto client = TcpClient::connect({.port = listener.port, .timeout = kHangLimit, .token = "right"});
    return client ? "none" : client.error().describe();
  };
  const auto error = connect();
  server.join();
  return base::replace_all(error, "127.0.0.1:" + std::to_string(listener.port), "HERE");
}

TEST(HostileStore, HandshakesThatBreakOffMessage) {
  std::string echo;
  put_number(&echo, static_cast<uint32_t>(getpid()), 4);
  const std::string has_token(1, '\1');
  const std::string nonce(kNonceBytes, 'n');
  const std::string proof(kProofBytes, 'p');
  const auto lost = "the store on HERE is lost: " + kClosed;
  EXPECT_EQ(error_of_handshake(""), "HERE is not a store\n  caused by: " + lost);
  EXPECT_EQ(error_of_handshake(echo.substr(0, 3)), "HERE is not a store\n  caused by: " + lost);
  EXPECT_EQ(error_of_handshake("echo"), "HERE is not a store\n  caused by: it answers a ping with another number");
  EXPECT_EQ(error_of_handshake(echo), "refused: the store on HERE knows no tokens\n  caused by: " + lost);
  EXPECT_EQ(error_of_handshake(echo + '\0'), lost);
  EXPECT_EQ(error_of_handshake(echo + has_token + nonce.substr(1)), lost);
  EXPECT_EQ(error_of_handshake(echo + has_token + nonce), lost);
  EXPECT_EQ(error_of_handshake(echo + has_token + nonce + kReady), lost);
  EXPECT_EQ(error_of_handshake(echo + has_token + nonce + kReady + proof.substr(1)), lost);
}

TEST(HostileStore, AServerThatOnlySaysThatItHasTheTokenMessage) {
  std::string begin;
  put_number(&begin, static_cast<uint32_t>(getpid()), 4);
  begin += '\1' + std::string(kNonceBytes, 'n');
  for (const char verdict : {kReady, kCanceled}) {
    EXPECT_EQ(error_of_handshake(begin + verdict + std::string(kProofBytes, 'p')),
              "refused: the store on HERE has another token than this process\n"
              "  hint: give every process of the job the same token");
  }
}

// A key of ours makes the client ask whether it was refused. The time for connecting does not bound that: of a thousand agents
// that meet at once, some are answered late.
TEST(SlowStore, MayTakeItsTimeOnceConnected) {
  auto [client, server] = connect_pair({.timeout = std::chrono::milliseconds(20), .answer_timeout = kHangLimit});
  std::thread talker([&socket = server] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::string echo;
    put_number(&echo, static_cast<uint32_t>(getpid()), 4);
    say(socket, echo);
  });
  const auto set = client->set("cohort/key", "value");
  talker.join();
  EXPECT_TRUE(set.ok()) << set.error().describe();
}

TEST(SocketStream, WhatTheOtherEndDoesNotTakeInTimeIsAnErrorMessage) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const base::Fd other(ends[1]);
  SocketStream stream{base::Fd(ends[0])};
  const std::string bytes(64 * kMiB, 'x');
  EXPECT_EQ(stream.send(bytes, Stream::Clock::now()).error().describe(), "it gave no answer in time");
  char byte;
  EXPECT_EQ(stream.receive(&byte, 1, Stream::Clock::now()).error().describe(), "it gave no answer in time");
}

TEST(SocketStream, WhatTheOtherEndTakesSlowlyArrivesWhole) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::string got(3 * kMiB, '\0');
  std::thread reader([&got, other = base::Fd(ends[1])] {
    for (size_t at = 0; at < got.size(); at += 1000) {
      const auto size = std::min<size_t>(1000, got.size() - at);
      EXPECT_EQ(recv(other.get(), &got[at], size, MSG_WAITALL), static_cast<long>(size));
    }
  });
  std::string bytes(got.size(), 'x');
  for (size_t i = 0; i < bytes.size(); i += 777) bytes[i] = static_cast<char>(i / 777);
  SocketStream stream{base::Fd(ends[0])};
  EXPECT_TRUE(stream.send(bytes, Stream::Clock::now() + kHangLimit).ok());
  reader.join();
  EXPECT_TRUE(got == bytes);
}

std::string http_answer(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Gives these answers, one after the other, whichever connection asks, and then the last again and again.
OpenStream answering(std::vector<std::string> answers) {
  const auto next = std::make_shared<size_t>(0);
  const auto answer = [answers = std::move(answers), next] {
    *next = std::min(*next + 1, answers.size());
    return answers[*next - 1];
  };
  return [answer] { return std::make_unique<ScriptedStream>(answer); };
}

TEST(HostileHttp, ALineOfAChunkHasAnEndMessage) {
  const auto endless = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(kMiB, 'x');
  HttpClient client("host", 80, base::IpFamily::kAny, std::nullopt, answering({endless}));
  EXPECT_EQ(client.post("/", "", kHangLimit).error().message(),
            "its answer is not HTTP: a line of more than 65536 bytes");
}

TEST(HostileHttp, ChunksOfAnySizeAreRead) {
  const auto body = std::string(100'000, 'a');
  const auto chunks =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + body + "\r\n3;a=b\r\nbcd\r\n0\r\n\r\n";
  for (const size_t piece : {1, 7, 1000, 1'000'000}) {
    HttpClient client("host", 80, base::IpFamily::kAny, std::nullopt, [&chunks, piece] {
      return std::make_unique<ScriptedStream>([&chunks] { return std::string(chunks); }, piece);
    });
    const auto answer = client.post("/", "", kHangLimit);
    ASSERT_TRUE(answer.ok()) << answer.error().describe();
    EXPECT_TRUE(answer->body == body + "bcd");
  }
}

EtcdStoreOptions options_for(const std::vector<std::string>& bodies) {
  std::vector<std::string> answers;
  for (const auto& body : bodies) answers.push_back(http_answer(body));
  return {.host = "host",
          .job = "job",
          .timeout = kHangLimit,
          .retry_time = std::chrono::milliseconds(0),
          .open = answering(answers)};
}

const std::string kLease =
    R"({"kvs":[{"key":")" + to_base64("cohort/job/lease") + R"(","value":")" + to_base64("7") + R"("}]})";
const std::string kAlive = R"({"result":{"TTL":"60"}})";

TEST(HostileEtcd, KeysThatWereNotAskedForAreLeftOut) {
  const auto key = [](const std::string& name) { return R"({"key":")" + to_base64(name) + R"("})"; };
  const auto found = R"({"kvs":[{},)" + key("x") + "," + key("cohort/job/values/a") + "," +
                     key("cohort/other/values/b") + R"(,[],"c"]})";
  const auto store = EtcdStore::connect(options_for({kLease, kAlive, found}));
  ASSERT_TRUE(store.ok()) << store.error().describe();
  EXPECT_THAT(*(*store)->list_keys(), ElementsAre("a"));
}

TEST(HostileEtcd, ANumberThatDoesNotComeIsAnErrorMessage) {
  const auto store = EtcdStore::connect(options_for({kLease, kAlive, "rubbish"}));
  ASSERT_TRUE(store.ok()) << store.error().describe();
  const auto problem =
      "etcd on host:2379 refuses a request\n  caused by: it answers with HTTP status 200 and no JSON\n"
      "  hint: see whether an etcd 3.4 or later runs there";
  const auto num_keys = (*store)->num_keys();
  EXPECT_EQ(num_keys.ok() ? "none" : num_keys.error().describe(), problem);
  const auto length = (*store)->queue_len("q");
  EXPECT_EQ(length.ok() ? "none" : length.error().describe(), problem);
}

TEST(HostileEtcd, AnswersNestedWithoutEndAreNoJsonMessage) {
  const auto deep = R"({"kvs":)" + std::string(300'000, '[') + std::string(300'000, ']') + "}";
  const auto error = EtcdStore::connect(options_for({deep})).error();
  EXPECT_EQ(
      error.describe(),
      "cannot open the store in etcd\n  caused by: etcd on host:2379 refuses a request\n  caused by: it answers with "
      "HTTP status 200 and no JSON\n  hint: see whether an etcd 3.4 or later runs there");
}

TEST(Base64, IsStrict) {
  EXPECT_EQ(from_base64(to_base64("a\xff")), "a\xff");
  EXPECT_EQ(from_base64(""), "");
  for (const char* text : {"AAA", "AA=A", "A===", " AAA", "AAA\n", "AA==AAAA", "AAAA----", "AA*A"}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace cohort::store
