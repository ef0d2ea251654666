/// HttpClient: sends requests to one HTTP/1.1 server over one connection, with or without TLS, and reconnects when it breaks.
/// Private to this folder.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/stream/stream.h"
#include "cohort/store/tls/tls_options.h"

namespace cohort::store {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  HttpClient(std::string host, int port, base::IpFamily family = base::IpFamily::kAny,
             std::optional<TlsOptions> tls = std::nullopt, OpenStream open = nullptr)
      : host_(std::move(host)), port_(port), family_(family), tls_(std::move(tls)), open_(std::move(open)) {}

  /// Sends a JSON body and returns the server's answer, at most 64 MiB. An error means that no complete answer came in time; the
  /// server may still have carried out the request.
  base::Result<HttpAnswer> post(const std::string& path, const std::string& body, std::chrono::milliseconds timeout);

  /// Whether, after an error, the next try would fail as well because files or certificates are wrong.
  bool is_hopeless() const { return is_hopeless_; }

 private:
  using Clock = Stream::Clock;
  base::Result<void> connect(std::chrono::milliseconds timeout);
  base::Result<HttpAnswer> exchange(const std::string& request, Clock::time_point deadline);
  base::Result<HttpAnswer> receive_answer(Clock::time_point deadline);

  const std::string host_;
  const int port_;
  const base::IpFamily family_;
  const std::optional<TlsOptions> tls_;
  const OpenStream open_;
  std::unique_ptr<Stream> stream_;
  /// Whether this connection has brought an answer.
  bool is_proven_ = false;
  bool is_hopeless_ = false;
};

}  // namespace cohort::store
