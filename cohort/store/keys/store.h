/// Store: keys and values that the processes of a job share, as c10d's Store (torch/csrc/distributed/c10d/Store.hpp), without
/// LibTorch. Keys and values are any bytes.
///
/// Operations return errors and never throw. An operation fails if the store cannot be reached, and for the reasons given below.
/// Operations that wait use timeout() unless they get another one; after a timeout their error has PyTorch's text: "wait timeout
/// after 300ms, keys: a, b".
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
  /// Waits until the key exists.
  virtual Result<std::string> get(const std::string& key) = 0;
  /// Adds to the decimal number at `key`, which counts as 0 if it does not exist. Returns the sum.
  virtual Result<int64_t> add(const std::string& key, int64_t number) = 0;
  /// Sets `desired` if the value is `expected`, or if there is no value and `expected` is empty. Returns the value afterwards;
  /// `expected` if there is none.
  virtual Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) = 0;
  virtual Result<bool> delete_key(const std::string& key) = 0;
  /// Whether all keys exist.
  virtual Result<bool> check(const Keys& keys) = 0;
  virtual Result<int64_t> num_keys() = 0;
  virtual Result<void> wait(const Keys& keys, Milliseconds timeout) = 0;
  virtual Result<void> append(const std::string& key, const std::string& value) = 0;
  /// Waits until all keys exist.
  virtual Result<Values> multi_get(const Keys& keys) = 0;
  virtual Result<void> multi_set(const Keys& keys, const Values& values) = 0;
  virtual Result<void> queue_push(const std::string& key, const std::string& value) = 0;
  /// Waits for an entry. If `block` is false and there is no entry, returns nothing at once.
  virtual Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) = 0;
  virtual Result<int64_t> queue_len(const std::string& key) = 0;
  virtual Result<Keys> list_keys() = 0;
  /// Waits until `world_size` callers have arrived. From then on the barrier stays open: it can be used once.
  virtual Result<void> barrier(const std::string& key, int64_t world_size, Milliseconds timeout);
  /// Makes another store on the same content. Its operations do not wait for those of this one.
  virtual Result<std::unique_ptr<Store>> clone() = 0;
  /// Ends what another thread waits for with an error; later operations fail, too. Does nothing on stores that cannot be
  /// interrupted.
  virtual void interrupt() {}
  virtual bool can_be_interrupted() const { return false; }

  virtual Milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

 private:
  std::atomic<Milliseconds> timeout_ = kDefaultTimeout;
};

/// Whether an operation failed only because of a timeout.
bool is_timeout(const base::Error& error);

/// The error of multi_set for lists of different lengths.
base::Error wrong_count(size_t num_keys, size_t num_values);

}  // namespace cohort::store
