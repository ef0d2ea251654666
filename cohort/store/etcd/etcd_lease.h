/// EtcdLease: the one lease that all keys of a job hang on. Any process of the job that lives keeps it; when the last has
/// ended, etcd removes the keys by itself. Private to this folder.
///
/// Thread-safety: all functions may be called from any thread. A thread of its own renews the lease.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "cohort/store/etcd/etcd_client.h"
#include "cohort/store/etcd/etcd_keys.h"

namespace cohort::store {

class EtcdLease {
 public:
  /// Takes the job's lease, or begins one.
  static base::Result<std::unique_ptr<EtcdLease>> take(const EtcdClient::Options& options, const EtcdKeys& keys,
                                                       std::chrono::seconds time_to_live);
  /// Renews it no more.
  ~EtcdLease();

  int64_t id() const { return id_.load(); }
  /// Takes the lease that there is now, where `lost` has ended.
  base::Result<void> replace(int64_t lost);
  /// Ends the lease, and with it all keys of the job.
  base::Result<void> revoke();

 private:
  EtcdLease(const EtcdClient::Options& options, EtcdKeys keys, std::chrono::seconds time_to_live)
      : client_(options), keys_(std::move(keys)), time_to_live_(time_to_live) {}

  base::Result<int64_t> find_or_grant();
  base::Result<int64_t> grant();
  /// Returns: whether there still is such a lease.
  base::Result<bool> renew(int64_t id);
  void keep();

  EtcdClient client_;
  const EtcdKeys keys_;
  const std::chrono::seconds time_to_live_;
  std::atomic<int64_t> id_ = 0;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  std::mutex replacing_;
  std::thread keeper_;
};

}  // namespace cohort::store
