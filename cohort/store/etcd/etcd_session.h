/// EtcdSession: one client's reads and changes of a job's keys in etcd. Private to this folder.
///
/// [Note: changes happen once] A call may be carried out twice (etcd_client.h). So each change also writes a number that this
/// client never used before to a key of the client's own, in the same transaction; if that number is already there, the change
/// has been made.
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
  /// What there is in a range (one_key(), all_keys_under(), with more of etcd's fields).
  base::Result<std::vector<Entry>> range(const nlohmann::json& request);
  base::Result<int64_t> count(nlohmann::json request);
  /// Each of the ranges, asked for at one moment per 100 of them.
  base::Result<std::vector<nlohmann::json>> ranges(const std::vector<nlohmann::json>& requests);

  /// Of an answer of ranges(); empty where there is none.
  static std::string first_value(const nlohmann::json& found);

  /// Requests for etcd, given the lease that written keys are to have.
  using Requests = std::function<nlohmann::json(int64_t lease)>;
  /// Makes a change that depends on nothing.
  base::Result<void> change(const Requests& requests);
  /// Makes a change if the key is as it was at `revision` (0: not there). Returns: whether it was.
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
