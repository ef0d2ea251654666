#include "cohort/store/etcd/etcd_lease.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"

namespace cohort::store {
namespace {

using base::Result;
using nlohmann::json;

std::string id_text(int64_t id) { return std::to_string(id); }

}  // namespace

Result<std::unique_ptr<EtcdLease>> EtcdLease::take(const EtcdClient::Options& options, const EtcdKeys& keys,
                                                   std::chrono::seconds time_to_live) {
  std::unique_ptr<EtcdLease> lease(new EtcdLease(options, keys, time_to_live));
  const auto id = lease->find_or_grant();
  if (!id) return id.error();
  lease->id_ = *id;
  lease->keep_alive_thread_ = std::thread([raw = lease.get()] { raw->keep(); });
  return lease;
}

EtcdLease::~EtcdLease() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_all();
  if (keep_alive_thread_.joinable()) keep_alive_thread_.join();
}

// The key of the lease belongs to the lease as well, so a lease that is found through its key is alive.
Result<int64_t> EtcdLease::find_or_grant() {
  int64_t granted = 0;
  while (true) {
    const auto answer = client_.call("/v3/kv/range", one_key(keys_.lease()));
    if (!answer) return answer.error();
    const auto entries = list_at(*answer, "kvs");
    const auto found = entries.empty() ? 0 : base::parse_int(bytes_at(entries.front(), "value")).value_or(0);
    const auto lives = found ? renew(found) : Result<bool>(false);
    if (!lives) return lives.error();
    if (*lives) {
      if (granted && granted != found) (void)client_.call("/v3/lease/revoke", {{"ID", id_text(granted)}});
      return found;
    }
    const auto id = grant();
    if (!id) return id;
    granted = *id;
    // The next read shows whether this process or another one wrote the key, also if an answer was lost.
    const auto put = json{{"request_put", put_of(keys_.lease(), id_text(granted), granted)}};
    const auto done = client_.call(
        "/v3/kv/txn", transaction(is_unchanged_since(keys_.lease(), 0), json::array({put}), json::array()));
    if (!done && !is_lease_lost(done.error())) return done.error();
  }
}

Result<int64_t> EtcdLease::grant() {
  const auto granted = client_.call("/v3/lease/grant", {{"TTL", id_text(time_to_live_.count())}});
  if (!granted) return granted.error();
  return number_at(*granted, "ID");
}

Result<bool> EtcdLease::renew(int64_t id) {
  const auto answer = client_.call("/v3/lease/keepalive", {{"ID", id_text(id)}});
  if (!answer) return answer.error();
  const auto result = answer->find("result");
  return result != answer->end() && number_at(*result, "TTL") > 0;
}

Result<void> EtcdLease::replace(int64_t lost) {
  const std::lock_guard lock(replacing_);
  if (id_ != lost) return {};
  const auto id = find_or_grant();
  if (!id) return id.error();
  id_ = *id;
  base::log_warning(
      fmt::format("what this job had in etcd is gone: nobody renewed its lease for {} s", time_to_live_.count()));
  return {};
}

Result<void> EtcdLease::revoke() {
  const auto done = client_.call("/v3/lease/revoke", {{"ID", id_text(id())}});
  if (!done && !is_lease_lost(done.error())) return done.error();
  return {};
}

void EtcdLease::keep() {
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::milliseconds(time_to_live_) / 3;
  while (!ending_.wait_for(lock, pause, [this] { return is_ending_; })) {
    lock.unlock();
    // Uses short attempts, because a process that ends must not wait for an etcd that is away. Operations that change something
    // wait longer.
    const auto answer =
        client_.try_call("/v3/lease/keepalive", {{"ID", id_text(id())}}, std::chrono::milliseconds(500));
    if (!answer) base::log_debug("cannot renew the lease in etcd: " + answer.error().describe());
    lock.lock();
  }
}

}  // namespace cohort::store
