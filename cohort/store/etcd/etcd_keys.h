/// The keys of an EtcdStore in etcd, and parts of requests for them. Pure. Private to this folder.
///
///     cohort/JOB/values/KEY             a value
///     cohort/JOB/queues/3:KEY/RANDOM    an entry of the queue KEY, whose name has 3 bytes; etcd knows their order
///     cohort/JOB/changes/CLIENT         the number of this client's last change
///     cohort/JOB/lease                  the lease that all of these keys belong to
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cohort::store {

class EtcdKeys {
 public:
  explicit EtcdKeys(std::string root) : root_(std::move(root)) {}

  std::string all() const { return root_ + "/"; }
  std::string values() const { return root_ + "/values/"; }
  std::string value(const std::string& key) const { return values() + key; }
  std::string queue(const std::string& key) const;
  std::string change(const std::string& client) const { return root_ + "/changes/" + client; }
  std::string lease() const { return root_ + "/lease"; }

 private:
  std::string root_;
};

/// Selects one key in /v3/kv/range and /v3/kv/deleterange.
nlohmann::json one_key(const std::string& key);
nlohmann::json all_keys_under(const std::string& prefix);
/// Puts a value in /v3/kv/put. etcd removes the key when the lease ends.
nlohmann::json put_of(const std::string& key, const std::string& value, int64_t lease);

/// A request for /v3/kv/txn: `success` if `compare` holds, else `failure`.
nlohmann::json transaction(nlohmann::json compare, nlohmann::json success, nlohmann::json failure);
/// Compares the revision of a key. Revision 0 means that the key does not exist.
nlohmann::json is_unchanged_since(const std::string& key, int64_t revision);
nlohmann::json has_value(const std::string& key, const std::string& value);

/// Returns a unique random name: 128 bits in hexadecimal.
std::string random_name();

}  // namespace cohort::store
