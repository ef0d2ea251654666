#include "cohort/store/http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>

#include "cohort/base/text.h"

namespace cohort::store {
namespace {

using base::Error;
using base::fill_in;
using std::chrono::milliseconds;
namespace http = boost::beast::http;

constexpr uint64_t kMaxBodyBytes = 64 * 1024 * 1024;
constexpr milliseconds kConnectTime = std::chrono::seconds(2);

}  // namespace

base::Result<HttpAnswer> HttpClient::post(const std::string& path, const std::string& body, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  if (!socket_) {
    auto socket = connect_to(host_, port_, std::min(timeout, kConnectTime), family_);
    if (!socket) return socket.error();
    socket_ = std::move(*socket);
  }
  auto answer = exchange(
      fill_in("POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", path,
              host_, port_, body.size()) +
          body,
      deadline);
  if (!answer) socket_.reset();
  return answer;
}

base::Result<HttpAnswer> HttpClient::exchange(const std::string& request, Clock::time_point deadline) {
  if (auto sent = send_all(request, deadline); !sent) return sent.error();
  return receive_answer(deadline);
}

base::Result<void> HttpClient::wait_for(short events, Clock::time_point deadline) const {
  pollfd poll_fd{socket_.get(), events, 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::clamp<long long>(left, 0, 1 << 30)));
    if (ready > 0) return {};
    if (ready == 0) return Error("it gave no answer in time");
    if (errno != EINTR) return Error(base::errno_text(errno));
  }
}

base::Result<void> HttpClient::send_all(const std::string& bytes, Clock::time_point deadline) {
  for (size_t sent = 0; sent < bytes.size();) {
    const auto size = send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      if (auto ready = wait_for(POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return Error(base::errno_text(errno));
    }
  }
  return {};
}

base::Result<HttpAnswer> HttpClient::receive_answer(Clock::time_point deadline) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxBodyBytes);
  std::string unread;
  std::array<char, 16 * 1024> piece;
  boost::system::error_code problem;
  while (!parser.is_done()) {
    if (auto ready = wait_for(POLLIN, deadline); !ready) return ready.error();
    const auto size = recv(socket_.get(), piece.data(), piece.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Error(base::errno_text(errno));
    if (size == 0) return Error("it has closed the connection");
    unread.append(piece.data(), static_cast<size_t>(size));
    do {
      unread.erase(0, parser.put(boost::asio::buffer(unread), problem));
      if (problem && problem != http::error::need_more) return Error("its answer is no HTTP: " + problem.message());
      // Before the parser makes room for it.
      if (parser.is_header_done() && parser.content_length().value_or(0) > kMaxBodyBytes) {
        return Error(fill_in("its answer is no HTTP: a body of {} bytes", *parser.content_length()));
      }
    } while (!problem && !unread.empty() && !parser.is_done());
  }
  HttpAnswer answer{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
  if (!parser.get().keep_alive()) socket_.reset();
  return answer;
}

}  // namespace cohort::store
