#include "cohort/store/etcd/http_client.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/store/tls/tls_stream.h"

namespace cohort::store {
namespace {

using base::Error;
using base::Result;
using std::chrono::milliseconds;
namespace http = boost::beast::http;

constexpr uint64_t kMaxBodyBytes = 64 * 1024 * 1024;
/// The limit for an incomplete chunk size, or for bytes after the last chunk.
constexpr size_t kMaxUnread = 64 * 1024;
constexpr milliseconds kConnectTime = std::chrono::seconds(2);

}  // namespace

Result<HttpAnswer> HttpClient::post(const std::string& path, const std::string& body, milliseconds timeout) {
  const auto deadline = base::deadline_after(timeout);
  is_hopeless_ = false;
  if (!stream_) {
    if (auto connected = connect(timeout); !connected) return connected.error();
  }
  auto answer = exchange(
      fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", path,
                  base::host_and_port(host_, port_), body.size()) +
          body,
      deadline);
  if (!answer) {
    is_hopeless_ = stream_->is_hopeless();
    stream_.reset();
  }
  return answer;
}

Result<void> HttpClient::connect(milliseconds timeout) {
  is_proven_ = false;
  if (open_) {
    stream_ = open_();
    return {};
  }
  const auto deadline = base::deadline_after(timeout);
  std::unique_ptr<TlsStream> tls;
  if (tls_) {
    auto created = TlsStream::create(host_, *tls_);
    is_hopeless_ = !created;
    if (!created) return created.error();
    tls = std::move(*created);
  }
  auto socket = connect_to(host_, port_, std::min(timeout, kConnectTime), family_);
  if (!socket) return socket.error();
  stream_ = std::make_unique<SocketStream>(std::move(*socket));
  if (!tls) return {};
  auto done = tls->shake_hands(std::move(stream_), deadline);
  is_hopeless_ = tls->is_hopeless();
  if (done) stream_ = std::move(tls);
  return done;
}

Result<HttpAnswer> HttpClient::exchange(const std::string& request, Clock::time_point deadline) {
  if (auto sent = stream_->send(request, deadline); !sent) return sent.error();
  return receive_answer(deadline);
}

Result<HttpAnswer> HttpClient::receive_answer(Clock::time_point deadline) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxBodyBytes);
  std::string unread;
  std::array<char, 16 * 1024> piece;
  boost::system::error_code problem;
  while (!parser.is_done()) {
    const auto size = stream_->receive(piece.data(), piece.size(), deadline);
    if (!size) return size.error();
    if (*size == 0) {
      return Error(is_proven_ || tls_ ? "it has closed the connection"
                                      : "it has closed the connection without an answer: perhaps it wants TLS");
    }
    unread.append(piece.data(), *size);
    do {
      unread.erase(0, parser.put(boost::asio::buffer(unread), problem));
      if (problem && problem != http::error::need_more) return Error("its answer is not HTTP: " + problem.message());
      // Checked before the parser allocates memory for the body.
      if (parser.is_header_done() && parser.content_length().value_or(0) > kMaxBodyBytes) {
        return Error(fmt::format("its answer is not HTTP: a body of {} bytes", *parser.content_length()));
      }
    } while (!problem && !unread.empty() && !parser.is_done());
    if (unread.size() > kMaxUnread && !parser.is_done()) {
      return Error(fmt::format("its answer is not HTTP: a line of more than {} bytes", kMaxUnread));
    }
  }
  is_proven_ = true;
  HttpAnswer answer{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
  if (!parser.get().keep_alive()) stream_.reset();
  return answer;
}

}  // namespace cohort::store
