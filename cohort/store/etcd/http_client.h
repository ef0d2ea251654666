/// HttpClient: requests to one HTTP/1.1 server over one connection, with or without TLS, which is made anew when it breaks.
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

  /// Sends a body of JSON and returns whatever the server answers, 64 MiB at most. An error: there was no complete answer in
  /// time; whether the server has acted on the request is unknown then.
  base::Result<HttpAnswer> post(const std::string& path, const std::string& body, std::chrono::milliseconds timeout);

  /// After an error: the next try would fail, too, because files or certificates are wrong.
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
  /// This connection has brought an answer.
  bool is_proven_ = false;
  bool is_hopeless_ = false;
};

}  // namespace cohort::store
