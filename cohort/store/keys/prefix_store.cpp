#include "cohort/store/keys/prefix_store.h"

namespace cohort::store {

Store::Result<std::unique_ptr<PrefixStore>> PrefixStore::open(const PrefixStoreOptions& options) {
  if (!options.store) return base::Error("a prefix store needs a store");
  return std::unique_ptr<PrefixStore>(new PrefixStore(options));
}

Store::Keys PrefixStore::whole(const Keys& keys) const {
  Keys all;
  all.reserve(keys.size());
  for (const auto& key : keys) all.push_back(whole(key));
  return all;
}

Store::Result<void> PrefixStore::set(const std::string& key, const std::string& value) {
  return store_->set(whole(key), value);
}

Store::Result<std::string> PrefixStore::get(const std::string& key) { return store_->get(whole(key)); }

Store::Result<int64_t> PrefixStore::add(const std::string& key, int64_t number) {
  return store_->add(whole(key), number);
}

Store::Result<std::string> PrefixStore::compare_set(const std::string& key, const std::string& expected,
                                                    const std::string& desired) {
  return store_->compare_set(whole(key), expected, desired);
}

Store::Result<bool> PrefixStore::delete_key(const std::string& key) { return store_->delete_key(whole(key)); }

Store::Result<bool> PrefixStore::check(const Keys& keys) { return store_->check(whole(keys)); }

Store::Result<int64_t> PrefixStore::num_keys() {
  const auto keys = list_keys();
  if (!keys) return keys.error();
  return static_cast<int64_t>(keys->size());
}

Store::Result<void> PrefixStore::wait(const Keys& keys, Milliseconds timeout) {
  return store_->wait(whole(keys), timeout);
}

Store::Result<void> PrefixStore::append(const std::string& key, const std::string& value) {
  return store_->append(whole(key), value);
}

Store::Result<Store::Values> PrefixStore::multi_get(const Keys& keys) { return store_->multi_get(whole(keys)); }

Store::Result<void> PrefixStore::multi_set(const Keys& keys, const Values& values) {
  return store_->multi_set(whole(keys), values);
}

Store::Result<void> PrefixStore::queue_push(const std::string& key, const std::string& value) {
  return store_->queue_push(whole(key), value);
}

Store::Result<std::optional<std::string>> PrefixStore::queue_pop(const std::string& key, bool block) {
  return store_->queue_pop(whole(key), block);
}

Store::Result<int64_t> PrefixStore::queue_len(const std::string& key) { return store_->queue_len(whole(key)); }

Store::Result<Store::Keys> PrefixStore::list_keys() {
  auto all = store_->list_keys();
  if (!all) return all;
  Keys keys;
  for (const auto& key : *all) {
    if (key.starts_with(prefix_)) keys.push_back(key.substr(prefix_.size()));
  }
  return keys;
}

Store::Result<void> PrefixStore::barrier(const std::string& key, int64_t world_size, Milliseconds timeout) {
  return store_->barrier(whole(key), world_size, timeout);
}

Store::Result<std::unique_ptr<Store>> PrefixStore::clone() {
  auto store = store_->clone();
  if (!store) return store;
  return std::unique_ptr<Store>(new PrefixStore({prefix_.substr(0, prefix_.size() - 1), std::move(*store)}));
}

}  // namespace cohort::store
