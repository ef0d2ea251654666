#include "cohort/base/net/http_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

namespace http = boost::beast::http;

constexpr size_t kMaxHead = 8 * 1024;
constexpr size_t kMaxBody = 64 * 1024;
constexpr size_t kMaxConnections = 16;
/// The number of clients accepted before others have their turn.
constexpr int kMaxAccepts = 64;
/// The number of bytes after a request that the server reads before it closes the connection.
constexpr size_t kMaxDiscarded = 1 << 20;

std::string reason_of(int status) {
  return std::string(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))));
}

std::string answer_text(const HttpResponse& response, bool has_body) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     response.status, reason_of(response.status), response.content_type, response.body.size(),
                     has_body ? response.body : std::string());
}

/// Returns the status for a request that the parser refuses.
int status_of(boost::system::error_code problem) {
  if (problem == http::error::need_more) return 0;
  if (problem == http::error::header_limit) return 431;
  return problem == http::error::body_limit ? 413 : 400;
}

HttpRequest request_of(const http::request<http::string_body>& message) {
  Url target = parse_url({message.target().data(), message.target().size()});
  return {.method = std::string(message.method_string()),
          .path = std::move(target.path),
          .parameters = std::move(target.parameters),
          .body = message.body()};
}

}  // namespace

HttpProgress parse_http_request(std::string_view bytes) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMaxHead);
  parser.body_limit(kMaxBody);
  parser.eager(true);
  boost::system::error_code problem;
  if (bytes.empty()) return {};
  parser.put(boost::asio::buffer(bytes.data(), bytes.size()), problem);
  HttpProgress progress{.status = problem ? status_of(problem) : parser.is_done() ? 200 : 0};
  if (!parser.is_header_done()) return progress;
  const bool is_path = parser.get().target().starts_with('/');
  if (parser.chunked()) progress.status = 501;
  if (!is_path) progress.status = 400;
  if (progress.status == 200) progress.request = request_of(parser.get());
  return progress;
}

struct HttpServer::Connection {
  Fd socket;
  std::string input;
  std::string output;
  size_t sent = 0;
  size_t discarded = 0;
};

Result<HttpServer> HttpServer::create(std::vector<Fd> listeners, Handler handler) {
  HttpServer server;
  server.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!server.epoll_) return Error(fmt::format("epoll_create1: {}", errno_text(errno)));
  for (const Fd& listener : listeners) {
    // Edge-triggered, so that a client for which no descriptor is left does not keep this thread busy.
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.fd = listener.get();
    if (::epoll_ctl(server.epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event) != 0) {
      return Error(fmt::format("epoll_ctl: {}", errno_text(errno)));
    }
  }
  server.listeners_ = std::move(listeners);
  server.handler_ = std::move(handler);
  return server;
}

HttpServer::HttpServer(HttpServer&& other) noexcept = default;
HttpServer::~HttpServer() = default;

void HttpServer::serve() {
  epoll_event events[kMaxConnections + 2];
  const int count = ::epoll_wait(epoll_.get(), events, static_cast<int>(std::size(events)), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const auto is_same = [fd](const Fd& listener) { return listener.get() == fd; };
    if (std::any_of(listeners_.begin(), listeners_.end(), is_same)) {
      accept_from(fd);
      continue;
    }
    const auto found = std::find_if(connections_.begin(), connections_.end(),
                                    [fd](const auto& connection) { return connection->socket.get() == fd; });
    if (found != connections_.end() && !advance(**found)) connections_.erase(found);
  }
}

void HttpServer::accept_from(int listener) {
  for (int i = 0; i < kMaxAccepts; ++i) {
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    if (connections_.size() >= kMaxConnections) connections_.erase(connections_.begin());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket.get();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) continue;
    connections_.push_back(std::make_unique<Connection>(Connection{std::move(socket), {}, {}}));
  }
  // More clients may be waiting. Setting the event again makes the kernel report them in the next round.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = listener;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener, &event);
}

void HttpServer::watch(int socket, bool for_writing) {
  epoll_event event{};
  event.events = for_writing ? EPOLLOUT : EPOLLIN;
  event.data.fd = socket;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event);
}

bool HttpServer::advance(Connection& connection) {
  if (connection.output.empty()) return read_request(connection);
  if (connection.sent < connection.output.size()) return send_answer(connection);
  // The answer has been sent. The client closes first: closing with unread bytes could take the answer from it.
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::recv(connection.socket.get(), buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    connection.discarded += static_cast<size_t>(size);
    if (size == 0 || connection.discarded > kMaxDiscarded) return false;
  }
}

bool HttpServer::read_request(Connection& connection) {
  char buffer[4096];
  while (connection.input.size() <= kMaxHead + kMaxBody) {
    const ssize_t size = ::recv(connection.socket.get(), buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) return false;
    connection.input.append(buffer, static_cast<size_t>(size));
  }
  const HttpProgress progress = parse_http_request(connection.input);
  if (progress.status == 0) return true;
  const bool is_whole = progress.status == 200;
  const HttpResponse response =
      is_whole ? handler_(progress.request)
               : HttpResponse{.status = progress.status, .body = reason_of(progress.status) + "\n"};
  connection.output = answer_text(response, progress.request.method != "HEAD");
  connection.input.clear();
  return send_answer(connection);
}

bool HttpServer::send_answer(Connection& connection) {
  while (connection.sent < connection.output.size()) {
    const ssize_t size = ::send(connection.socket.get(), connection.output.data() + connection.sent,
                                connection.output.size() - connection.sent, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      watch(connection.socket.get(), /*for_writing=*/true);
      return true;
    }
    if (size < 0) return false;
    connection.sent += static_cast<size_t>(size);
  }
  ::shutdown(connection.socket.get(), SHUT_WR);
  watch(connection.socket.get(), /*for_writing=*/false);
  return true;
}

}  // namespace cohort::base
