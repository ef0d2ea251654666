/// EtcdLease: the lease that all keys of a job belong to. Every process of the job renews it; when the last process has ended,
/// etcd removes the keys. Private to this folder.
///
/// Thread-safety: all functions may be called from any thread. An own thread renews the lease.
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
  /// Finds the job's lease, or creates one.
  static base::Result<std::unique_ptr<EtcdLease>> take(const EtcdClient::Options& options, const EtcdKeys& keys,
                                                       std::chrono::seconds time_to_live);
  /// Stops renewing the lease.
  ~EtcdLease();

  int64_t id() const { return id_.load(); }
  /// Switches to the job's current lease after `lost` has ended.
  base::Result<void> replace(int64_t lost);
  /// Ends the lease, and so removes all keys of the job.
  base::Result<void> revoke();

 private:
  EtcdLease(const EtcdClient::Options& options, EtcdKeys keys, std::chrono::seconds time_to_live)
      : client_(options), keys_(std::move(keys)), time_to_live_(time_to_live) {}

  base::Result<int64_t> find_or_grant();
  base::Result<int64_t> grant();
  /// Returns whether the lease still exists.
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
  std::thread keep_alive_thread_;
};

}  // namespace cohort::store
