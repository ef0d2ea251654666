#include "cohort/base/net/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cohort::base {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

TEST(HttpRequestParser, TakesMethodPathQueryAndBody) {
  const HttpProgress progress =
      parse_http_request("POST /a/b?x=1&y=a%20b+c%zz&z HTTP/1.1\r\nHost: h\r\ncontent-LENGTH: 3\r\n\r\nabcdef");
  ASSERT_EQ(progress.status, 200);
  EXPECT_EQ(progress.request.method, "POST");
  EXPECT_EQ(progress.request.path, "/a/b");
  EXPECT_THAT(progress.request.parameters, UnorderedElementsAre(Pair("x", "1"), Pair("y", "a b c%zz"), Pair("z", "")));
  EXPECT_EQ(progress.request.body, "abc");
}

TEST(HttpRequestParser, WaitsForTheRest) {
  const std::string whole = "POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_http_request(whole.substr(0, size)).status, 0) << size;
  }
  EXPECT_EQ(parse_http_request(whole).status, 200);
}

TEST(HttpRequestParser, RefusesWhatIsNoRequestOrTooLarge) {
  const std::string end = "\r\n\r\n";
  EXPECT_EQ(parse_http_request("hello" + end).status, 400);
  EXPECT_EQ(parse_http_request(end).status, 400);
  EXPECT_EQ(parse_http_request("\x16\x03\x01").status, 400) << "TLS";
  EXPECT_EQ(parse_http_request("GET nowhere HTTP/1.1" + end).status, 400);
  EXPECT_EQ(parse_http_request("GET / HTTP/2.0" + end).status, 400);
  EXPECT_EQ(parse_http_request("GET / HTTP/1.1\r\nno colon" + end).status, 400);
  EXPECT_EQ(parse_http_request("GET / HTTP/1.1\r\nContent-Length: -1" + end).status, 400);
  EXPECT_EQ(parse_http_request("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999" + end).status, 400);
  EXPECT_EQ(parse_http_request("GET / HTTP/1.1\r\nContent-Length: 65537" + end).status, 413);
  EXPECT_EQ(parse_http_request("POST / HTTP/1.1\r\nTransfer-Encoding: chunked" + end).status, 501);
  EXPECT_EQ(parse_http_request(std::string(8193, 'x')).status, 431);
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener.get(), 64), 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    address_ = address;
    std::vector<Fd> listeners;
    listeners.push_back(std::move(listener));
    server_.emplace(HttpServer::create(std::move(listeners), [this](const HttpRequest& request) {
                      paths_.push_back(request.path);
                      return HttpResponse{.status = 200, .body = std::string(body_size_, 'b')};
                    }).value());
  }

  Fd connect() {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    return socket;
  }

  void serve() {
    pollfd entry{server_->fd(), POLLIN, 0};
    while (::poll(&entry, 1, 5) > 0) server_->serve();
  }

  /// Until the server ends the connection.
  std::string answer_to(Fd& socket, const std::string& request) {
    EXPECT_TRUE(write_all(socket.get(), request));
    std::string answer;
    char buffer[65536];
    for (int idle = 0; idle < 600;) {
      pollfd entries[2] = {{server_->fd(), POLLIN, 0}, {socket.get(), POLLIN, 0}};
      idle = ::poll(entries, 2, 50) == 0 ? idle + 1 : 0;
      if (entries[0].revents) server_->serve();
      if (!entries[1].revents) continue;
      const ssize_t size = ::read(socket.get(), buffer, sizeof buffer);
      if (size <= 0) return answer;
      answer.append(buffer, static_cast<size_t>(size));
    }
    ADD_FAILURE() << "the server hangs";
    return answer;
  }

  sockaddr_in address_{};
  std::optional<HttpServer> server_;
  std::vector<std::string> paths_;
  size_t body_size_ = 2;
};

TEST_F(HttpServerTest, AnswersAndHangsUp) {
  Fd client = connect();
  EXPECT_EQ(answer_to(client, "GET /x?y HTTP/1.1\r\nHost: h\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nbb");
  EXPECT_EQ(paths_, std::vector<std::string>{"/x"});
  Fd other = connect();
  EXPECT_EQ(answer_to(other, "HEAD / HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
}

TEST_F(HttpServerTest, LargeAnswersArriveWhole) {
  body_size_ = 20'000'000;
  Fd client = connect();
  const std::string answer = answer_to(client, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer.substr(0, 100), HasSubstr("Content-Length: 20000000\r\n"));
  EXPECT_GT(answer.size(), 20'000'000u);
  EXPECT_EQ(answer.back(), 'b');
}

TEST_F(HttpServerTest, RefusesGarbageAndSaysWhy) {
  Fd client = connect();
  EXPECT_THAT(answer_to(client, "\x16\x03\x01 hello\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  Fd large = connect();
  EXPECT_THAT(answer_to(large, std::string(200'000, 'x')), StartsWith("HTTP/1.1 431 Request Header Fields Too Large"));
  EXPECT_TRUE(paths_.empty());
}

TEST_F(HttpServerTest, SilentClientsKeepNobodyOut) {
  std::vector<Fd> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(connect());
    ASSERT_TRUE(write_all(silent.back().get(), "GET / HT"));
    serve();
  }
  Fd client = connect();
  EXPECT_THAT(answer_to(client, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  char byte;
  errno = 0;
  EXPECT_LE(::recv(silent.front().get(), &byte, 1, MSG_DONTWAIT), 0) << "the oldest was given up";
  EXPECT_NE(errno, EAGAIN);
}

TEST_F(HttpServerTest, ManyClientsAtOnceAreAllTaken) {
  std::vector<Fd> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(connect());  // as many as the backlog holds
  server_->serve();
  clients.push_back(connect());
  EXPECT_THAT(answer_to(clients.back(), "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, ClientsThatVanishAreForgotten) {
  for (int i = 0; i < 100; ++i) {
    Fd client = connect();
    ASSERT_TRUE(write_all(client.get(), "GET /gone HTTP/1.1\r\n\r\n"));
    client.reset();
    serve();
  }
  Fd client = connect();
  EXPECT_THAT(answer_to(client, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

}  // namespace
}  // namespace cohort::base
