/// HttpClient: requests to one HTTP/1.1 server over one connection, which is made anew when it breaks. No TLS. Private to this
/// folder.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <string>

#include "cohort/base/file.h"
#include "cohort/base/result.h"
#include "cohort/store/socket.h"

namespace cohort::store {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  HttpClient(std::string host, int port, Family family = Family::kAny)
      : host_(std::move(host)), port_(port), family_(family) {}

  /// Sends a body of JSON and returns whatever the server answers, 64 MiB at most. An error: there was no complete answer in
  /// time; whether the server has acted on the request is unknown then.
  base::Result<HttpAnswer> post(const std::string& path, const std::string& body, std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  base::Result<HttpAnswer> exchange(const std::string& request, Clock::time_point deadline);
  base::Result<void> send_all(const std::string& bytes, Clock::time_point deadline);
  base::Result<HttpAnswer> receive_answer(Clock::time_point deadline);
  base::Result<void> wait_for(short events, Clock::time_point deadline) const;

  const std::string host_;
  const int port_;
  const Family family_;
  base::Fd socket_;
};

}  // namespace cohort::store
