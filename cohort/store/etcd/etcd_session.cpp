#include "cohort/store/etcd/etcd_session.h"

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

namespace cohort::store {
namespace {

using base::Result;
using nlohmann::json;

// By default etcd accepts 128 requests in a transaction.
constexpr size_t kMostRequests = 100;

// Returns the parts of a transaction's answer that belong to requests for ranges.
std::vector<json> ranges_of(const json& answer) {
  std::vector<json> ranges;
  for (const auto& response : list_at(answer, "responses")) {
    ranges.push_back(response.is_object() && response.contains("response_range") ? response["response_range"]
                                                                                 : json::object());
  }
  return ranges;
}

}  // namespace

Result<std::vector<EtcdSession::Entry>> EtcdSession::range(const json& request) {
  const auto answer = client_.call("/v3/kv/range", request);
  if (!answer) return answer.error();
  std::vector<Entry> entries;
  for (const auto& each : list_at(*answer, "kvs")) {
    entries.push_back({bytes_at(each, "key"), bytes_at(each, "value"), number_at(each, "mod_revision")});
  }
  return entries;
}

Result<int64_t> EtcdSession::count(json request) {
  request["count_only"] = true;
  const auto answer = client_.call("/v3/kv/range", request);
  if (!answer) return answer.error();
  return number_at(*answer, "count");
}

Result<std::vector<json>> EtcdSession::ranges(const std::vector<json>& requests) {
  std::vector<json> all;
  for (size_t begin = 0; begin < requests.size(); begin += kMostRequests) {
    auto parts = json::array();
    for (size_t i = begin; i < std::min(begin + kMostRequests, requests.size()); ++i) {
      parts.push_back({{"request_range", requests[i]}});
    }
    const auto answer = client_.call("/v3/kv/txn", {{"success", parts}});
    if (!answer) return answer.error();
    auto found = ranges_of(*answer);
    if (found.size() != parts.size()) return base::Error("etcd answered only part of a transaction");
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

std::string EtcdSession::first_value(const json& found) {
  const auto entries = list_at(found, "kvs");
  return entries.empty() ? std::string() : bytes_at(entries.front(), "value");
}

Result<json> EtcdSession::commit(const std::function<json(int64_t lease)>& transaction) {
  while (true) {
    const auto lease = lease_->id();
    auto answer = client_.call("/v3/kv/txn", transaction(lease));
    if (answer || !is_lease_lost(answer.error())) return answer;
    if (auto replaced = lease_->replace(lease); !replaced) return replaced.error();
  }
}

Result<void> EtcdSession::change(const Requests& requests) {
  const auto number = next_number();
  const auto mark = keys_.change(name_);
  const auto done = commit([&](int64_t lease) {
    auto all = requests(lease);
    all.push_back({{"request_put", put_of(mark, number, lease)}});
    return transaction(has_value(mark, number), json::array(), all);
  });
  if (!done) return done.error();
  return {};
}

Result<bool> EtcdSession::change_if(const std::string& key, int64_t revision, const Requests& requests) {
  const auto number = next_number();
  const auto mark = keys_.change(name_);
  const auto answer = commit([&](int64_t lease) {
    auto all = requests(lease);
    all.push_back({{"request_put", put_of(mark, number, lease)}});
    return transaction(is_unchanged_since(key, revision), all, json::array({json{{"request_range", one_key(mark)}}}));
  });
  if (!answer) return answer.error();
  if (is_true_at(*answer, "succeeded")) return true;
  // The change may have been made by a call whose answer was lost.
  const auto marks = ranges_of(*answer);
  return !marks.empty() && first_value(marks.front()) == number;
}

Result<void> EtcdSession::update(const std::string& key, const Update& update) {
  thread_local std::minstd_rand random(std::random_device{}());
  for (unsigned attempt = 1;; ++attempt) {
    const auto entries = range(one_key(key));
    if (!entries) return entries.error();
    const auto* const found = entries->empty() ? nullptr : &entries->front();
    const auto wanted = update(found ? std::optional(found->value) : std::nullopt);
    if (!wanted) return wanted.error();
    if (!*wanted) return {};
    const auto done = change_if(key, found ? found->revision : 0, [&](int64_t lease) {
      return json::array({json{{"request_put", put_of(key, **wanted, lease)}}});
    });
    if (!done) return done.error();
    if (*done) return {};
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (std::min(attempt, 50u) * 1000)));
  }
}

}  // namespace cohort::store
