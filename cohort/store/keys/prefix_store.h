/// PrefixStore: a part of another store, as c10d's PrefixStore: its key "a" is "prefix/a" there. Errors name the full key.
#pragma once

#include <memory>
#include <string>

#include "cohort/store/keys/store.h"

namespace cohort::store {

struct PrefixStoreOptions {
  std::string prefix;
  std::shared_ptr<Store> store;
};

class PrefixStore final : public Store {
 public:
  /// Opens the part. An error if `options` has no store.
  static Result<std::unique_ptr<PrefixStore>> open(const PrefixStoreOptions& options);

  Result<void> set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key) override;
  Result<int64_t> add(const std::string& key, int64_t number) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Result<bool> delete_key(const std::string& key) override;
  Result<bool> check(const Keys& keys) override;
  /// Counts the keys of this part, as list_keys does. (PyTorch's counts all keys of the store.)
  Result<int64_t> num_keys() override;
  Result<void> wait(const Keys& keys, Milliseconds timeout) override;
  Result<void> append(const std::string& key, const std::string& value) override;
  Result<Values> multi_get(const Keys& keys) override;
  Result<void> multi_set(const Keys& keys, const Values& values) override;
  Result<void> queue_push(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) override;
  Result<int64_t> queue_len(const std::string& key) override;
  Result<Keys> list_keys() override;
  Result<void> barrier(const std::string& key, int64_t world_size, Milliseconds timeout) override;
  /// Makes a PrefixStore on a clone of the other store.
  Result<std::unique_ptr<Store>> clone() override;

  /// The timeout of the other store.
  Milliseconds timeout() const override { return store_->timeout(); }
  void set_timeout(Milliseconds timeout) override { store_->set_timeout(timeout); }

 private:
  explicit PrefixStore(const PrefixStoreOptions& options) : prefix_(options.prefix + "/"), store_(options.store) {}
  std::string whole(const std::string& key) const { return prefix_ + key; }
  Keys whole(const Keys& keys) const;

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

}  // namespace cohort::store
