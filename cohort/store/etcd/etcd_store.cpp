#include "cohort/store/etcd/etcd_store.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "cohort/base/log/log.h"
#include "cohort/base/net/url.h"
#include "cohort/base/text/text.h"
#include "cohort/store/etcd/etcd_session.h"
#include "cohort/store/keys/table.h"
#include "cohort/store/keys/waiting.h"
#include "cohort/store/tls/tls_context.h"

namespace cohort::store {
namespace {

using base::Error;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kLongestPollPause{100};
constexpr size_t kKeysOfOneChange = 100;

EtcdClient::Options client_options(const EtcdStoreOptions& options) {
  return {options.host, options.port, options.family, options.retry_time, options.tls, options.open};
}

// Warns once, although a process that waits for etcd reconnects many times.
void warn_of_key(const TlsOptions& options) {
  static std::atomic<bool> was_said = false;
  const auto doubt = doubt_about_key(options);
  if (!doubt.empty() && !was_said.exchange(true)) base::log_warning(doubt);
}

}  // namespace

EtcdStore::EtcdStore(const EtcdStoreOptions& options, std::shared_ptr<EtcdLease> lease)
    : options_(options),
      session_(
          std::make_unique<EtcdSession>(client_options(options), EtcdKeys("cohort/" + options.job), std::move(lease))) {
  set_timeout(options.timeout);
}

EtcdStore::~EtcdStore() = default;

Store::Result<std::unique_ptr<EtcdStore>> EtcdStore::connect(const EtcdStoreOptions& asked) {
  auto options = asked;
  const std::string scheme = base::parse_url(options.host).scheme;
  if (scheme == "http" || scheme == "https") options.host.erase(0, scheme.size() + 3);
  if (scheme == "https" && !options.tls) options.tls.emplace();
  if (scheme == "http" && options.tls) {
    return Error("etcd's endpoint begins with http://, but the certificates need https://");
  }
  if (options.job.empty()) return Error("a store in etcd needs the name of a job");
  if (options.tls) warn_of_key(*options.tls);
  auto lease = EtcdLease::take(client_options(options), EtcdKeys("cohort/" + options.job), options.time_to_live);
  if (!lease) return Error("cannot open the store in etcd").caused_by(lease.error());
  return std::unique_ptr<EtcdStore>(new EtcdStore(options, std::move(*lease)));
}

Store::Result<void> EtcdStore::set(const std::string& key, const std::string& value) {
  return multi_set({key}, {value});
}

Store::Result<std::string> EtcdStore::get(const std::string& key) {
  auto values = multi_get({key});
  if (!values) return values.error();
  return std::move(values->front());
}

Store::Result<int64_t> EtcdStore::add(const std::string& key, int64_t number) {
  int64_t sum = 0;
  const auto done =
      session_->update(session_->keys().value(key), [&](const auto& before) -> Result<std::optional<std::string>> {
        const auto result = sum_of(key, before ? &*before : nullptr, number);
        if (!result) return result.error();
        sum = *result;
        return std::optional(std::to_string(sum));
      });
  if (!done) return done.error();
  return sum;
}

Store::Result<std::string> EtcdStore::compare_set(const std::string& key, const std::string& expected,
                                                  const std::string& desired) {
  std::string there;
  const auto done =
      session_->update(session_->keys().value(key), [&](const auto& before) -> Result<std::optional<std::string>> {
        const bool is_as_expected = before ? *before == expected : expected.empty();
        there = is_as_expected ? desired : before.value_or(expected);
        return is_as_expected ? std::optional(desired) : std::nullopt;
      });
  if (!done) return done.error();
  return there;
}

Store::Result<bool> EtcdStore::delete_key(const std::string& key) {
  const auto place = session_->keys().value(key);
  while (true) {
    const auto found = session_->range(one_key(place));
    if (!found) return found.error();
    if (found->empty()) return false;
    const auto done = session_->change_if(place, found->front().revision, [&](int64_t) {
      return json::array({json{{"request_delete_range", one_key(place)}}});
    });
    if (!done) return done.error();
    if (*done) return true;
  }
}

Store::Result<bool> EtcdStore::check(const Keys& keys) {
  std::vector<json> requests;
  for (const auto& key : keys) {
    requests.push_back(one_key(session_->keys().value(key)));
    requests.push_back(all_keys_under(session_->keys().queue(key)));
  }
  for (auto& request : requests) request["count_only"] = true;
  const auto found = session_->ranges(requests);
  if (!found) return found.error();
  for (size_t i = 0; i < found->size(); i += 2) {
    if (number_at((*found)[i], "count") == 0 && number_at((*found)[i + 1], "count") == 0) return false;
  }
  return true;
}

Store::Result<int64_t> EtcdStore::num_keys() { return session_->count(all_keys_under(session_->keys().values())); }

Store::Result<void> EtcdStore::wait(const Keys& keys, Milliseconds timeout) {
  Pauses pauses(timeout, kLongestPollPause);
  Keys missing = keys;
  while (!missing.empty()) {
    // Checks one key after the other, so that a key that existed and has been deleted counts.
    const auto is_there = check({missing.back()});
    if (!is_there) return is_there.error();
    if (*is_there) {
      missing.pop_back();
    } else if (!pauses.rest()) {
      return wait_timed_out(timeout, keys);
    }
  }
  return {};
}

Store::Result<void> EtcdStore::append(const std::string& key, const std::string& value) {
  return session_->update(session_->keys().value(key), [&](const auto& before) -> Result<std::optional<std::string>> {
    return std::optional(before.value_or("") + value);
  });
}

Store::Result<Store::Values> EtcdStore::multi_get(const Keys& keys) {
  std::vector<json> requests;
  for (const auto& key : keys) requests.push_back(one_key(session_->keys().value(key)));
  if (auto waited = wait(keys, timeout()); !waited) return waited.error();
  const auto found = session_->ranges(requests);
  if (!found) return found.error();
  Values values;
  for (const auto& each : *found) values.push_back(EtcdSession::first_value(each));
  return values;
}

Store::Result<void> EtcdStore::multi_set(const Keys& keys, const Values& values) {
  if (keys.size() != values.size()) return wrong_count(keys.size(), values.size());
  for (size_t begin = 0; begin < keys.size(); begin += kKeysOfOneChange) {
    const auto done = session_->change([&](int64_t lease) {
      auto puts = json::array();
      const auto end = keys.begin() + static_cast<long>(std::min(begin + kKeysOfOneChange, keys.size()));
      for (size_t i = begin; keys.begin() + static_cast<long>(i) < end; ++i) {
        // etcd refuses a key that occurs twice; the last value counts.
        if (std::find(keys.begin() + static_cast<long>(i) + 1, end, keys[i]) != end) continue;
        puts.push_back({{"request_put", put_of(session_->keys().value(keys[i]), values[i], lease)}});
      }
      return puts;
    });
    if (!done) return done;
  }
  return {};
}

Store::Result<void> EtcdStore::queue_push(const std::string& key, const std::string& value) {
  const auto place = session_->keys().queue(key) + random_name();
  return session_->change([&](int64_t lease) {
    return json::array({json{{"request_put", put_of(place, value, lease)}}});
  });
}

Store::Result<std::optional<std::string>> EtcdStore::queue_pop(const std::string& key, bool block) {
  Pauses pauses(timeout(), kLongestPollPause);
  auto first = all_keys_under(session_->keys().queue(key));
  first.update({{"limit", "1"}, {"sort_target", "CREATE"}, {"sort_order", "ASCEND"}});
  while (true) {
    const auto found = session_->range(first);
    if (!found) return found.error();
    if (!found->empty()) {
      const auto& entry = found->front();
      const auto taken = session_->change_if(entry.key, entry.revision, [&](int64_t) {
        return json::array({json{{"request_delete_range", one_key(entry.key)}}});
      });
      if (!taken) return taken.error();
      if (*taken) return std::optional(entry.value);
      continue;
    }
    if (!block) return std::optional<std::string>();
    if (!pauses.rest()) return wait_timed_out(timeout(), {key});
  }
}

Store::Result<int64_t> EtcdStore::queue_len(const std::string& key) {
  return session_->count(all_keys_under(session_->keys().queue(key)));
}

Store::Result<Store::Keys> EtcdStore::list_keys() {
  auto request = all_keys_under(session_->keys().values());
  request["keys_only"] = true;
  const auto found = session_->range(request);
  if (!found) return found.error();
  Keys keys;
  const auto prefix = session_->keys().values();
  for (const auto& entry : *found) {
    if (entry.key.starts_with(prefix)) keys.push_back(entry.key.substr(prefix.size()));
  }
  return keys;
}

Store::Result<std::unique_ptr<Store>> EtcdStore::clone() {
  auto options = options_;
  options.timeout = timeout();
  return std::unique_ptr<Store>(new EtcdStore(options, session_->lease()));
}

Store::Result<void> EtcdStore::remove_all() { return session_->lease()->revoke(); }

}  // namespace cohort::store
