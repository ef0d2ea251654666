#include "cohort/comm/process/expires.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/json_text.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"

namespace cohort {
namespace {

using base::Error;

constexpr int kTries = 10;
constexpr std::chrono::milliseconds kBetweenTries{100};

/// Returns seconds since 1970, with a decimal point in every locale.
std::string time_after(std::chrono::duration<double> after) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = static_cast<long long>(std::clamp((now + after).count(), 0.0, 1e12) * 1e6);
  char text[64];
  std::snprintf(text, sizeof text, "%lld.%06lld", microseconds / 1'000'000, microseconds % 1'000'000);
  return text;
}

std::string request_line(const std::string& scope, const std::string& expiration_time, int signal) {
  return fmt::format("{{\"version\": 1, \"pid\": {}, \"scope_id\": {}, \"expiration_time\": {}, \"signal\": {}}}\n",
                     ::getpid(), base::json_string(scope), expiration_time, signal);
}

/// Returns 0 or an errno. The line is small enough to be written completely or not at all.
int try_to_send(const std::string& path, const std::string& line) {
  // O_NONBLOCK: does not wait for a launcher that is gone.
  const base::Fd pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (!pipe) return errno;
  return ::write(pipe.get(), line.data(), line.size()) < 0 ? errno : 0;
}

base::Result<void> send(const std::string& path, const std::string& line) {
  if (line.size() > PIPE_BUF) {
    return Error(fmt::format("a timer's scope is too long: its request has {} bytes, and at most {} can be sent",
                             line.size(), PIPE_BUF));
  }
  int number = 0;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenTries);
    number = try_to_send(path, line);
    if (number == 0) return {};
  }
  return Error(fmt::format("the launcher does not take timers at TORCHELASTIC_TIMER_FILE=\"{}\": {}", path,
                           base::errno_text(number)))
      .with_hint("start the job with TORCHELASTIC_ENABLE_FILE_TIMER=1, or unset TORCHELASTIC_TIMER_FILE");
}

}  // namespace

Expires::Expires(std::chrono::duration<double> after, const std::optional<std::string>& scope, int signal,
                 const std::source_location& where)
    : path_(base::get_env("TORCHELASTIC_TIMER_FILE").value_or("")),
      scope_(scope ? *scope : fmt::format("{}#{}", where.file_name(), where.line())) {
  if (path_.empty()) {
    base::warn_once("cohort::Expires: TORCHELASTIC_TIMER_FILE is not set, so no launcher watches these blocks");
    return;
  }
  comm::or_throw(send(path_, request_line(scope_, time_after(after), signal)));
}

Expires::~Expires() {
  if (path_.empty()) return;
  const base::Result<void> sent = send(path_, request_line(scope_, "-1", 0));
  if (!sent) base::log_warning(sent.error().describe());
}

}  // namespace cohort
