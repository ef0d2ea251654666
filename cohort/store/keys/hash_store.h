/// HashStore: a store inside one process, for threads and for tests.
#pragma once

#include <memory>

#include "cohort/store/keys/store.h"

namespace cohort::store {

class HashStore final : public Store {
 public:
  static Result<std::unique_ptr<HashStore>> open();
  ~HashStore() override;

  Result<void> set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key) override;
  Result<int64_t> add(const std::string& key, int64_t number) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Result<bool> delete_key(const std::string& key) override;
  Result<bool> check(const Keys& keys) override;
  Result<int64_t> num_keys() override;
  Result<void> wait(const Keys& keys, Milliseconds timeout) override;
  Result<void> append(const std::string& key, const std::string& value) override;
  Result<Values> multi_get(const Keys& keys) override;
  Result<void> multi_set(const Keys& keys, const Values& values) override;
  Result<void> queue_push(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) override;
  Result<int64_t> queue_len(const std::string& key) override;
  Result<Keys> list_keys() override;
  /// Shares the content, which lives as long as one of its stores.
  Result<std::unique_ptr<Store>> clone() override;

 private:
  struct Content;
  explicit HashStore(std::shared_ptr<Content> content);

  const std::shared_ptr<Content> content_;
};

}  // namespace cohort::store
