/// EtcdStore: a store in etcd, which outlives any host of the job. Uses etcd's v3 API through its JSON gateway over HTTP, with
/// TLS and certificates if asked; it does not support passwords.
///
/// All keys are under cohort/JOB/ and belong to one lease, which every process with an open EtcdStore of the job renews: the keys
/// of a dead job disappear. Each change is made exactly once, even if etcd restarts during it. Waiting polls, at first without a
/// pause, later ten times a second.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cohort/store/keys/store.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/stream/stream.h"
#include "cohort/store/tls/tls_options.h"

namespace cohort::store {

class EtcdLease;
class EtcdSession;

struct EtcdStoreOptions {
  /// A name or an address. "http://" may come before it, or "https://", which enables TLS.
  std::string host = "127.0.0.1";
  int port = 2379;
  base::IpFamily family = base::IpFamily::kAny;
  /// The job's name. Stores with the same name share their content.
  std::string job;
  /// The initial timeout() of the store.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
  /// The time for which an operation is repeated while etcd does not answer.
  std::chrono::milliseconds retry_time{30'000};
  /// The time after which etcd removes the keys if no process renews their lease. Processes renew it three times as often.
  std::chrono::seconds time_to_live{60};
  /// If absent, the connection has no TLS, unless host says "https://".
  std::optional<TlsOptions> tls;
  OpenStream open = nullptr;
};

/// Whether an error of connect() stays until files or certificates are corrected.
bool is_tls_hopeless(const base::Error& error);

class EtcdStore final : public Store {
 public:
  /// Waits at most options.retry_time for etcd. Warns if every user can read the key file.
  static Result<std::unique_ptr<EtcdStore>> connect(const EtcdStoreOptions& options);
  ~EtcdStore() override;

  Result<void> set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key) override;
  Result<int64_t> add(const std::string& key, int64_t number) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Result<bool> delete_key(const std::string& key) override;
  Result<bool> check(const Keys& keys) override;
  Result<int64_t> num_keys() override;
  Result<void> wait(const Keys& keys, Milliseconds timeout) override;
  Result<void> append(const std::string& key, const std::string& value) override;
  Result<Values> multi_get(const Keys& keys) override;
  /// Makes one change for each 100 keys.
  Result<void> multi_set(const Keys& keys, const Values& values) override;
  Result<void> queue_push(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) override;
  Result<int64_t> queue_len(const std::string& key) override;
  Result<Keys> list_keys() override;
  Result<std::unique_ptr<Store>> clone() override;

  /// Removes all keys of the job now. For a process that knows that the job is over.
  Result<void> remove_all();

 private:
  EtcdStore(const EtcdStoreOptions& options, std::shared_ptr<EtcdLease> lease);

  const EtcdStoreOptions options_;
  const std::unique_ptr<EtcdSession> session_;
};

}  // namespace cohort::store
