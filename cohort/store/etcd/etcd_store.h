/// EtcdStore: a store in etcd, so that it outlives any host of the job. Speaks etcd's v3 API through its JSON gateway over
/// HTTP, with TLS and certificates if asked; no passwords.
///
/// All keys lie under cohort/JOB/ and hang on one lease that every process with an open EtcdStore of the job renews: a job
/// that is dead leaves nothing behind. Changes are made exactly once, also when etcd restarts in the middle. Waiting looks
/// again, at first at once, later ten times a second.
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
  /// A name or an address; "http://" may stand before it, or "https://", which switches TLS on.
  std::string host = "127.0.0.1";
  int port = 2379;
  base::IpFamily family = base::IpFamily::kAny;
  /// Stores with the same share their content.
  std::string job;
  /// What timeout() is afterwards.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
  /// For how long an operation is tried again while etcd does not answer.
  std::chrono::milliseconds retry_time{30'000};
  /// How long the keys stay when nobody renews their lease. Renewed three times as often.
  std::chrono::seconds time_to_live{60};
  /// Nothing: without TLS, unless host says "https://".
  std::optional<TlsOptions> tls;
  OpenStream open = nullptr;
};

/// An error of connect() that stays until files or certificates are put right.
bool is_tls_hopeless(const base::Error& error);

class EtcdStore final : public Store {
 public:
  /// Waits for etcd for options.retry_time at most. Warns of a key that everybody can read.
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
  /// One change for 100 keys at a time.
  Result<void> multi_set(const Keys& keys, const Values& values) override;
  Result<void> queue_push(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) override;
  Result<int64_t> queue_len(const std::string& key) override;
  Result<Keys> list_keys() override;
  Result<std::unique_ptr<Store>> clone() override;

  /// Removes all keys of the job now, for whoever knows that it is over.
  Result<void> remove_all();

 private:
  EtcdStore(const EtcdStoreOptions& options, std::shared_ptr<EtcdLease> lease);

  const EtcdStoreOptions options_;
  const std::unique_ptr<EtcdSession> session_;
};

}  // namespace cohort::store
