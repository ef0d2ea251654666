#include "cohort/store/etcd/etcd_client.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "cohort/base/net/address.h"
#include "cohort/base/text/json_text.h"
#include "cohort/base/text/text.h"
#include "cohort/store/keys/waiting.h"
#include "cohort/store/tls/base64.h"

namespace cohort::store {
namespace {

using base::Error;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime = std::chrono::seconds(5);
constexpr milliseconds kLongestRetryPause{250};

// gRPC's codes: the request took too long inside etcd; there is no leader, or the server is about to stop.
constexpr int kDeadlineExceeded = 4;
constexpr int kUnavailable = 14;

// Answers are nested 6 deep. Copying a value that is nested a hundred thousand times takes more stack than a thread has.
constexpr size_t kMostDepth = 64;

constexpr std::string_view kNoTls = "cannot speak TLS with ";

}  // namespace

struct EtcdClient::Attempt {
  base::Result<json> answer;
  bool may_be_repeated = false;
  bool is_hopeless = false;
};

EtcdClient::Attempt EtcdClient::attempt(const std::string& path, const std::string& body, milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const auto answer = http_.post(path, body, timeout);
  if (!answer) {
    const bool is_hopeless = http_.is_hopeless() && !was_answered_;
    return {answer.error(), !is_hopeless, is_hopeless};
  }
  was_answered_ = true;
  auto parsed = base::json_depth(answer->body) > kMostDepth ? json(json::value_t::discarded)
                                                            : json::parse(answer->body, nullptr, false);
  if (answer->status == 200 && parsed.is_object()) return {std::move(parsed), false};
  if (!parsed.is_object()) {
    return {Error(fmt::format("it answers with HTTP status {} and no JSON", answer->status))
                .with_hint("see whether an etcd 3.4 or later runs there"),
            answer->status >= 500};
  }
  const auto code = number_at(parsed, "code");
  const auto message = text_at(parsed, "message");
  return {Error(message.empty() ? answer->body : message), code == kDeadlineExceeded || code == kUnavailable};
}

base::Result<json> EtcdClient::try_call(const std::string& path, const json& request, milliseconds timeout) {
  return attempt(path, request.dump(), timeout).answer;
}

base::Result<json> EtcdClient::call(const std::string& path, const json& request) {
  const auto body = request.dump();
  Pauses pauses(options_.retry_time, kLongestRetryPause);
  std::optional<Error> cause;
  while (true) {
    const auto limit = std::clamp(pauses.left(), milliseconds(100), kAnswerTime);
    const auto begin = Pauses::Clock::now();
    auto last = attempt(path, body, limit);
    if (last.answer) return last.answer;
    // An attempt that the end of the retry time cut short says nothing about the server, so the error is from the attempt before.
    const bool was_cut_short = limit < kAnswerTime && Pauses::Clock::now() - begin >= limit;
    if (!cause || !was_cut_short) cause = last.answer.error();
    const auto where = "etcd on " + base::host_and_port(options_.host, options_.port);
    if (last.is_hopeless) return Error(std::string(kNoTls) + where).caused_by(last.answer.error());
    if (!last.may_be_repeated) return Error(where + " refuses a request").caused_by(last.answer.error());
    if (!pauses.rest()) {
      return Error(where + " gave no answer for " + base::format_duration(options_.retry_time))
          .caused_by(std::move(*cause))
          .with_hint("see whether etcd runs, and whether a majority of its members does");
    }
  }
}

int64_t number_at(const json& answer, const char* name) {
  const auto found = answer.find(name);
  if (found == answer.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  return found->is_string() ? base::parse_int(found->get_ref<const std::string&>()).value_or(0) : 0;
}

std::string text_at(const json& answer, const char* name) {
  const auto found = answer.find(name);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_true_at(const json& answer, const char* name) {
  const auto found = answer.find(name);
  return found != answer.end() && found->is_boolean() && found->get<bool>();
}

json list_at(const json& answer, const char* name) {
  const auto found = answer.find(name);
  return found != answer.end() && found->is_array() ? *found : json::array();
}

std::string bytes_at(const json& answer, const char* name) { return from_base64(text_at(answer, name)).value_or(""); }

bool is_tls_hopeless(const Error& error) {
  for (const auto* cause = &error; cause; cause = cause->cause()) {
    if (cause->message().starts_with(kNoTls)) return true;
  }
  return false;
}

bool is_lease_lost(const Error& error) {
  for (const auto* cause = &error; cause; cause = cause->cause()) {
    if (cause->message().find("requested lease not found") != std::string::npos) return true;
  }
  return false;
}

}  // namespace cohort::store
