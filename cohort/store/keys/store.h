/// Store: keys and values that the processes of a job share, as c10d's Store (torch/csrc/distributed/c10d/Store.hpp), without
/// LibTorch. Keys and values are any bytes.
///
/// Every operation returns an error, never throws: of a store that cannot be reached, and where said. Operations that wait use
/// timeout() unless they are given another one; on time-out their error says so, as PyTorch does:
/// "wait timeout after 300ms, keys: a, b".
/// Thread-safety: all functions may be called from any thread; they wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::store {

class Store {
 public:
  using Keys = std::vector<std::string>;
  using Values = std::vector<std::string>;
  using Milliseconds = std::chrono::milliseconds;
  template <class T>
  using Result = base::Result<T>;

  static constexpr Milliseconds kDefaultTimeout = std::chrono::seconds(300);

  virtual ~Store() = default;

  virtual Result<void> set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key is there.
  virtual Result<std::string> get(const std::string& key) = 0;
  /// Adds to the decimal number at `key`, 0 if there is none. Returns: the sum.
  virtual Result<int64_t> add(const std::string& key, int64_t number) = 0;
  /// Sets `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns: the value there is
  /// afterwards; `expected` where there is none.
  virtual Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) = 0;
  virtual Result<bool> delete_key(const std::string& key) = 0;
  /// True if all keys are there.
  virtual Result<bool> check(const Keys& keys) = 0;
  virtual Result<int64_t> num_keys() = 0;
  virtual Result<void> wait(const Keys& keys, Milliseconds timeout) = 0;
  virtual Result<void> append(const std::string& key, const std::string& value) = 0;
  /// Waits until all keys are there.
  virtual Result<Values> multi_get(const Keys& keys) = 0;
  virtual Result<void> multi_set(const Keys& keys, const Values& values) = 0;
  virtual Result<void> queue_push(const std::string& key, const std::string& value) = 0;
  /// Waits for an entry, or returns nothing at once where there is none and `block` is false.
  virtual Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) = 0;
  virtual Result<int64_t> queue_len(const std::string& key) = 0;
  virtual Result<Keys> list_keys() = 0;
  /// Waits until `world_size` callers have come. From then on the barrier is open, for good: it serves once.
  virtual Result<void> barrier(const std::string& key, int64_t world_size, Milliseconds timeout);
  /// Another one on the same content, which waits for none of this one's operations.
  virtual Result<std::unique_ptr<Store>> clone() = 0;
  /// Ends what another thread waits for, with an error; later operations fail too. Does nothing on stores that cannot do so.
  virtual void interrupt() {}
  virtual bool can_be_interrupted() const { return false; }

  virtual Milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

 private:
  std::atomic<Milliseconds> timeout_ = kDefaultTimeout;
};

/// Whether an operation failed only because what it waited for did not happen in time.
bool is_timeout(const base::Error& error);

/// For multi_set with unequal lists.
base::Error wrong_count(size_t num_keys, size_t num_values);

}  // namespace cohort::store
