#include "cohort/store/keys/hash_store.h"

#include <condition_variable>
#include <mutex>
#include <unordered_set>

#include "cohort/base/system/deadline.h"
#include "cohort/store/keys/table.h"
#include "cohort/store/keys/waiting.h"

namespace cohort::store {

struct HashStore::Content {
  using Lock = std::unique_lock<std::mutex>;

  // Uses the table, then wakes the threads whose last key has arrived.
  template <class Use>
  auto with_table(const Use& use) {
    const Lock lock(mutex);
    auto result = use(table);
    if (!ready.empty()) came.notify_all();
    return result;
  }

  // The caller holds the lock before and after.
  Result<void> wait(Lock& lock, const Keys& keys, Pauses::Clock::time_point deadline, Milliseconds timeout) {
    const auto waiter = next_waiter++;
    if (table.wait(waiter, keys)) return {};
    if (came.wait_until(lock, deadline, [&] { return ready.erase(waiter) > 0; })) return {};
    table.stop_waiting(waiter);
    return wait_timed_out(timeout, keys);
  }

  std::mutex mutex;
  std::condition_variable came;
  Table::Waiter next_waiter = 0;
  std::unordered_set<Table::Waiter> ready;
  Table table{[this](Table::Waiter waiter) { ready.insert(waiter); }};
};

HashStore::HashStore(std::shared_ptr<Content> content) : content_(std::move(content)) {}
HashStore::~HashStore() = default;

Store::Result<std::unique_ptr<HashStore>> HashStore::open() {
  return std::unique_ptr<HashStore>(new HashStore(std::make_shared<Content>()));
}

Store::Result<void> HashStore::set(const std::string& key, const std::string& value) {
  return multi_set({key}, {value});
}

Store::Result<std::string> HashStore::get(const std::string& key) {
  auto values = multi_get({key});
  if (!values) return values.error();
  return std::move(values->front());
}

Store::Result<int64_t> HashStore::add(const std::string& key, int64_t number) {
  return content_->with_table([&](Table& table) { return table.add(key, number); });
}

Store::Result<std::string> HashStore::compare_set(const std::string& key, const std::string& expected,
                                                  const std::string& desired) {
  return content_->with_table([&](Table& table) { return table.compare_set(key, expected, desired); });
}

Store::Result<bool> HashStore::delete_key(const std::string& key) {
  return content_->with_table([&](Table& table) { return table.delete_key(key); });
}

Store::Result<bool> HashStore::check(const Keys& keys) {
  return content_->with_table([&](const Table& table) { return table.check(keys); });
}

Store::Result<int64_t> HashStore::num_keys() {
  return content_->with_table([](const Table& table) { return static_cast<int64_t>(table.num_keys()); });
}

Store::Result<void> HashStore::wait(const Keys& keys, Milliseconds timeout) {
  Content::Lock lock(content_->mutex);
  return content_->wait(lock, keys, base::deadline_after(timeout), timeout);
}

Store::Result<void> HashStore::append(const std::string& key, const std::string& value) {
  return content_->with_table([&](Table& table) {
    table.append(key, value);
    return Result<void>();
  });
}

Store::Result<Store::Values> HashStore::multi_get(const Keys& keys) {
  Content::Lock lock(content_->mutex);
  if (auto waited = content_->wait(lock, keys, base::deadline_after(timeout()), timeout()); !waited)
    return waited.error();
  Values values;
  for (const auto& key : keys) {
    const auto* const value = content_->table.get(key);
    values.push_back(value ? *value : std::string());
  }
  return values;
}

Store::Result<void> HashStore::multi_set(const Keys& keys, const Values& values) {
  if (keys.size() != values.size()) return wrong_count(keys.size(), values.size());
  return content_->with_table([&](Table& table) {
    for (size_t i = 0; i < keys.size(); ++i) table.set(keys[i], values[i]);
    return Result<void>();
  });
}

Store::Result<void> HashStore::queue_push(const std::string& key, const std::string& value) {
  return content_->with_table([&](Table& table) {
    table.queue_push(key, value);
    return Result<void>();
  });
}

Store::Result<std::optional<std::string>> HashStore::queue_pop(const std::string& key, bool block) {
  Content::Lock lock(content_->mutex);
  const auto deadline = base::deadline_after(timeout());
  while (true) {
    auto value = content_->table.queue_pop(key);
    if (value || !block) return value;
    if (auto waited = content_->wait(lock, {key}, deadline, timeout()); !waited) return waited.error();
    if (content_->table.queue_len(key) > 0) continue;
    // Another thread was faster, or the key has a value, which counts as existing and hides the queue.
    if (Pauses::Clock::now() >= deadline) return wait_timed_out(timeout(), {key});
    content_->came.wait_for(lock, std::chrono::milliseconds(1));
  }
}

Store::Result<int64_t> HashStore::queue_len(const std::string& key) {
  return content_->with_table([&](const Table& table) { return static_cast<int64_t>(table.queue_len(key)); });
}

Store::Result<Store::Keys> HashStore::list_keys() {
  return content_->with_table([](const Table& table) { return table.list_keys(); });
}

Store::Result<std::unique_ptr<Store>> HashStore::clone() {
  std::unique_ptr<Store> copy(new HashStore(content_));
  copy->set_timeout(timeout());
  return copy;
}

}  // namespace cohort::store
