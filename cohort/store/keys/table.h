/// Table: the content of a store, and the waiters for its keys. Pure: no clock, no socket.
///
/// Behaves as torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp of PyTorch 2.13.
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::store {

/// Returns the sum of `number` and the decimal number `before` (null: 0), the value of `key`. Returns an error if `before` is not
/// a number or the sum needs more than 63 bits.
base::Result<int64_t> sum_of(const std::string& key, const std::string* before, int64_t number);

class Table {
 public:
  using Waiter = uint64_t;
  /// Called when all keys that `waiter` waits for exist, from within the call that added the last of them.
  using WhenReady = std::function<void(Waiter waiter)>;

  explicit Table(WhenReady when_ready) : when_ready_(std::move(when_ready)) {}

  void set(const std::string& key, std::string value);
  /// Returns the value; null if there is none.
  const std::string* get(const std::string& key) const;
  /// Adds to the decimal number at `key`, which counts as 0 if it does not exist. Errors as for sum_of().
  base::Result<int64_t> add(const std::string& key, int64_t number);
  /// Sets `desired` if the value is `expected`, or if there is no value and `expected` is empty. Returns the value afterwards;
  /// `expected` if there is none.
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  void append(const std::string& key, const std::string& value);
  bool delete_key(const std::string& key);
  size_t num_keys() const { return values_.size(); }
  std::vector<std::string> list_keys() const;

  /// Queues are separate from values. A queue that has entries counts as a key in check() and wait().
  void queue_push(const std::string& key, std::string value);
  std::optional<std::string> queue_pop(const std::string& key);
  size_t queue_len(const std::string& key) const;

  bool check(const std::vector<std::string>& keys) const;
  /// Returns true if all keys exist; otherwise `waiter` waits for them.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  /// Adds 1 to the number at `key`. Once it reaches `world_size`, the barrier stays open: it can be used once. Returns true if it
  /// is open; WhenReady tells the others that wait at it. Returns false if `waiter` waits. Errors as for add().
  base::Result<bool> barrier(Waiter waiter, const std::string& key, int64_t world_size);
  /// Forgets what `waiter` waits for. It stays counted at a barrier.
  void stop_waiting(Waiter waiter);
  size_t num_waiters() const { return waiting_.size(); }

  /// The approximate memory of the table: keys, values, entries of queues and waiters, plus 64 bytes for each of them.
  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Waiting {
    std::unordered_set<std::string> keys;
    std::string barrier;
  };

  static size_t size_of(const std::string& key, const std::string& value = {}) {
    constexpr size_t kEntryBytes = 64;
    return key.size() + value.size() + kEntryBytes;
  }

  bool has(const std::string& key) const;
  void arrived(const std::string& key);
  void wake_one(const std::string& key);
  bool is_ready(Waiter waiter) const;
  void forget(const std::string& key, Waiter waiter);

  const WhenReady when_ready_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::unordered_map<std::string, std::vector<Waiter>> barriers_;
  std::unordered_map<std::string, std::deque<Waiter>> waiters_of_;  ///< by key, in order of arrival
  std::unordered_map<Waiter, Waiting> waiting_;
  size_t num_bytes_ = 0;
};

}  // namespace cohort::store
