/// EtcdSession: one client's reads and changes of a job's keys in etcd. Private to this folder.
///
/// [Note: changes happen once] A call may be carried out twice (etcd_client.h). So each change also writes a new number to a key
/// of this client, in the same transaction; if that number is already there, the change has been made.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cohort/store/etcd/etcd_client.h"
#include "cohort/store/etcd/etcd_keys.h"
#include "cohort/store/etcd/etcd_lease.h"

namespace cohort::store {

class EtcdSession {
 public:
  EtcdSession(const EtcdClient::Options& options, EtcdKeys keys, std::shared_ptr<EtcdLease> lease)
      : client_(options), keys_(std::move(keys)), lease_(std::move(lease)) {}

  struct Entry {
    std::string key;
    std::string value;
    int64_t revision = 0;
  };
  /// Returns the entries of a range (one_key(), all_keys_under(), with more of etcd's fields).
  base::Result<std::vector<Entry>> range(const nlohmann::json& request);
  base::Result<int64_t> count(nlohmann::json request);
  /// Reads several ranges, up to 100 of them in one transaction.
  base::Result<std::vector<nlohmann::json>> ranges(const std::vector<nlohmann::json>& requests);

  /// Returns the first value in an answer of ranges(); empty if there is none.
  static std::string first_value(const nlohmann::json& found);

  /// Builds requests for etcd, given the lease for the keys that they write.
  using Requests = std::function<nlohmann::json(int64_t lease)>;
  /// Makes a change without a condition.
  base::Result<void> change(const Requests& requests);
  /// Makes a change if the key has not changed since `revision` (0: if the key does not exist). Returns whether it made the
  /// change.
  base::Result<bool> change_if(const std::string& key, int64_t revision, const Requests& requests);

  /// Gets the current value and returns the new one, or nothing for no change. Called again if another client was faster.
  using Update = std::function<base::Result<std::optional<std::string>>(const std::optional<std::string>& before)>;
  base::Result<void> update(const std::string& key, const Update& update);

  const EtcdKeys& keys() const { return keys_; }
  const std::shared_ptr<EtcdLease>& lease() const { return lease_; }

 private:
  base::Result<nlohmann::json> commit(const std::function<nlohmann::json(int64_t lease)>& transaction);
  std::string next_number() { return std::to_string(++num_changes_); }

  EtcdClient client_;
  const EtcdKeys keys_;
  const std::shared_ptr<EtcdLease> lease_;
  const std::string name_ = random_name();
  std::atomic<int64_t> num_changes_ = 0;
};

}  // namespace cohort::store
