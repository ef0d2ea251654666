/// EtcdClient: calls etcd's v3 API through its JSON gateway (etcd 3.4 and later). Private to this folder.
///
/// A call that gets no answer, or an answer that says "try again", is repeated until `retry_time` is over, so that a restart of
/// etcd does no harm. A call may thus be carried out twice. Thread-safety: all functions may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/store/etcd/http_client.h"

namespace cohort::store {

class EtcdClient {
 public:
  struct Options {
    std::string host;
    int port = 2379;
    base::IpFamily family = base::IpFamily::kAny;
    std::chrono::milliseconds retry_time{30'000};
    /// If absent, the connection has no TLS.
    std::optional<TlsOptions> tls;
    OpenStream open = nullptr;
  };
  explicit EtcdClient(const Options& options)
      : options_(options), http_(options.host, options.port, options.family, options.tls, options.open) {}

  /// Calls a `path` such as "/v3/kv/range". Errors have etcd's own words, or say for how long it gave no answer. Fails at once if
  /// TLS cannot work (is_tls_hopeless() of etcd_store.h) and never has worked: certificates may be renewed while a job runs.
  base::Result<nlohmann::json> call(const std::string& path, const nlohmann::json& request);
  /// Tries a call once, within `timeout`.
  base::Result<nlohmann::json> try_call(const std::string& path, const nlohmann::json& request,
                                        std::chrono::milliseconds timeout);

  const Options& options() const { return options_; }

 private:
  struct Attempt;
  Attempt attempt(const std::string& path, const std::string& body, std::chrono::milliseconds timeout);

  const Options options_;
  std::mutex mutex_;
  HttpClient http_;
  bool was_answered_ = false;
};

/// Reads a field of an answer of any form: 0 or "" if there is no such number (64 bits come as text) or text.
int64_t number_at(const nlohmann::json& answer, const char* name);
std::string text_at(const nlohmann::json& answer, const char* name);
bool is_true_at(const nlohmann::json& answer, const char* name);
/// Reads a list; an empty list if there is none.
nlohmann::json list_at(const nlohmann::json& answer, const char* name);
/// Reads bytes that are written in base64.
std::string bytes_at(const nlohmann::json& answer, const char* name);

/// Whether this is etcd's error for a change that names a lease that has ended.
bool is_lease_lost(const base::Error& error);

}  // namespace cohort::store
