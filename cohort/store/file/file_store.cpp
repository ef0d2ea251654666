#include "cohort/store/file/file_store.h"

#include <fmt/format.h>

#include "cohort/base/text/text.h"
#include "cohort/store/keys/waiting.h"

namespace cohort::store {
namespace {

using base::Error;
using Access = FileLog::Access;

// The first character of an entry's key: PyTorch's values, deletions and counts of users, and Cohort's queues.
constexpr char kValue = '/';
constexpr const char* kDeletion = "-/";
constexpr const char* kUsers = "refcount/";
constexpr const char* kFormerUsers = "cleanup/";
constexpr const char* kPush = "push/";
constexpr const char* kPop = "pop/";

std::string value_entry(const std::string& key, const std::string& value) {
  return encode_entry({kValue + key, value});
}

bool take_prefix(std::string* key, std::string_view prefix) {
  if (!key->starts_with(prefix)) return false;
  key->erase(0, prefix.size());
  return true;
}

}  // namespace

std::unique_ptr<Table> FileStore::empty_table() {
  return std::make_unique<Table>([](Table::Waiter) {});
}

template <class Use>
auto FileStore::with_table(const Use& use) -> decltype(use(std::declval<const Table&>())) {
  const std::lock_guard guard(mutex_);
  const auto lock = log_.lock(Access::kRead, timeout());
  if (!lock) return lock.error();
  if (auto done = catch_up(); !done) return done.error();
  return use(*table_);
}

template <class Use>
auto FileStore::with_log(const Use& use) -> decltype(use(std::declval<Table&>(), std::declval<std::string*>())) {
  const std::lock_guard guard(mutex_);
  const auto lock = log_.lock(Access::kWrite, timeout());
  if (!lock) return lock.error();
  if (auto done = catch_up(); !done) return done.error();
  std::string entries;
  auto result = use(*table_, &entries);
  if (entries.empty()) return result;
  if (auto done = log_.append(entries); !done) {
    // The tables may have entries that the file lacks.
    table_ = empty_table();
    counts_ = empty_table();
    log_.rewind();
    return done.error();
  }
  return result;
}

Store::Result<void> FileStore::catch_up() {
  if (failure_) return *failure_;
  auto entries = log_.read_new();
  if (!entries) return entries.error();
  for (auto& entry : *entries) {
    if (auto done = apply(std::move(entry)); !done) {
      failure_ = done.error();
      return done;
    }
  }
  return {};
}

Store::Result<void> FileStore::apply(LogEntry entry) {
  auto& [key, value] = entry;
  if (take_prefix(&key, {&kValue, 1})) {
    table_->set(key, std::move(value));
  } else if (take_prefix(&key, kDeletion)) {
    table_->delete_key(key);
  } else if (take_prefix(&key, kPush)) {
    table_->queue_push(key, std::move(value));
  } else if (take_prefix(&key, kPop)) {
    table_->queue_pop(key);
  } else if (key == kUsers || key == kFormerUsers) {
    counts_->set(key, std::move(value));
  } else {
    return Error(fmt::format("\"{}\" is not the file of a store", options_.path)).with_hint("choose another path");
  }
  return {};
}

Store::Result<std::unique_ptr<FileStore>> FileStore::open(const FileStoreOptions& options) {
  while (true) {
    auto log = FileLog::open(options.path);
    if (!log) return Error("cannot open the file store").caused_by(log.error());
    std::unique_ptr<FileStore> store(new FileStore(options, std::move(*log)));
    store->set_timeout(options.timeout);
    const auto begun = store->with_log([&](Table&, std::string* entries) -> Result<void> {
      const auto users = store->counts_->add(kUsers, 1);
      if (!users) return users.error();
      *entries = encode_entry({kUsers, std::to_string(*users)});
      return {};
    });
    if (begun) return store;
    store->failure_ = begun.error();
    // The last user removed the file between open and lock. There may be another file now.
    if (store->log_.is_removed()) continue;
    return Error("cannot open the file store").caused_by(begun.error());
  }
}

FileStore::~FileStore() { (void)leave(); }

// Does what PyTorch's store does, in the same order.
Store::Result<void> FileStore::leave() {
  if (failure_) return *failure_;
  set_timeout(std::min<Milliseconds>(timeout(), std::chrono::seconds(5)));
  return with_log([this](Table&, std::string* entries) -> Result<void> {
    const auto former = counts_->add(kFormerUsers, 1);
    const auto users = counts_->add(kUsers, -1);
    if (!former || !users) return {};
    *entries = encode_entry({kFormerUsers, std::to_string(*former)}) + encode_entry({kUsers, std::to_string(*users)});
    if (*users == 0 && options_.num_workers >= 0 && *former >= options_.num_workers) log_.remove_file();
    return {};
  });
}

Store::Result<void> FileStore::set(const std::string& key, const std::string& value) {
  return multi_set({key}, {value});
}

Store::Result<std::string> FileStore::get(const std::string& key) {
  auto values = multi_get({key});
  if (!values) return values.error();
  return std::move(values->front());
}

Store::Result<int64_t> FileStore::add(const std::string& key, int64_t number) {
  return with_log([&](Table& table, std::string* entries) {
    auto sum = table.add(key, number);
    if (sum) *entries = value_entry(key, std::to_string(*sum));
    return sum;
  });
}

Store::Result<std::string> FileStore::compare_set(const std::string& key, const std::string& expected,
                                                  const std::string& desired) {
  return with_log([&](Table& table, std::string* entries) -> Result<std::string> {
    const auto* const before = table.get(key);
    if (before ? *before == expected : expected.empty()) *entries = value_entry(key, desired);
    return table.compare_set(key, expected, desired);
  });
}

Store::Result<bool> FileStore::delete_key(const std::string& key) {
  return with_log([&](Table& table, std::string* entries) -> Result<bool> {
    const bool was_there = table.delete_key(key);
    if (was_there) *entries = encode_entry({kDeletion + key, {}});
    return was_there;
  });
}

Store::Result<bool> FileStore::check(const Keys& keys) {
  return with_table([&](const Table& table) -> Result<bool> { return table.check(keys); });
}

Store::Result<int64_t> FileStore::num_keys() {
  return with_table([](const Table& table) -> Result<int64_t> { return static_cast<int64_t>(table.num_keys()); });
}

Store::Result<void> FileStore::wait(const Keys& keys, Milliseconds timeout) {
  Pauses pauses(timeout);
  Keys missing = keys;
  while (true) {
    auto looked = with_table([&](const Table& table) -> Result<void> {
      std::erase_if(missing, [&](const auto& key) { return table.check({key}); });
      return {};
    });
    if (!looked || missing.empty()) return looked;
    if (!pauses.rest()) return wait_timed_out(timeout, keys);
  }
}

Store::Result<void> FileStore::append(const std::string& key, const std::string& value) {
  return with_log([&](Table& table, std::string* entries) -> Result<void> {
    table.append(key, value);
    *entries = value_entry(key, *table.get(key));
    return {};
  });
}

Store::Result<Store::Values> FileStore::multi_get(const Keys& keys) {
  if (auto waited = wait(keys, timeout()); !waited) return waited.error();
  return with_table([&](const Table& table) -> Result<Values> {
    Values values;
    for (const auto& key : keys) {
      const auto* const value = table.get(key);
      values.push_back(value ? *value : std::string());
    }
    return values;
  });
}

Store::Result<void> FileStore::multi_set(const Keys& keys, const Values& values) {
  if (keys.size() != values.size()) return wrong_count(keys.size(), values.size());
  return with_log([&](Table& table, std::string* entries) -> Result<void> {
    for (size_t i = 0; i < keys.size(); ++i) {
      table.set(keys[i], values[i]);
      *entries += value_entry(keys[i], values[i]);
    }
    return {};
  });
}

Store::Result<void> FileStore::queue_push(const std::string& key, const std::string& value) {
  return with_log([&](Table& table, std::string* entries) -> Result<void> {
    table.queue_push(key, value);
    *entries = encode_entry({kPush + key, value});
    return {};
  });
}

Store::Result<std::optional<std::string>> FileStore::queue_pop(const std::string& key, bool block) {
  Pauses pauses(timeout());
  while (true) {
    auto value = with_log([&](Table& table, std::string* entries) -> Result<std::optional<std::string>> {
      auto first = table.queue_pop(key);
      if (first) *entries = encode_entry({kPop + key, {}});
      return first;
    });
    if (!value || *value || !block) return value;
    if (!pauses.rest()) return wait_timed_out(timeout(), {key});
  }
}

Store::Result<int64_t> FileStore::queue_len(const std::string& key) {
  return with_table([&](const Table& table) -> Result<int64_t> { return static_cast<int64_t>(table.queue_len(key)); });
}

Store::Result<Store::Keys> FileStore::list_keys() {
  return with_table([](const Table& table) -> Result<Keys> { return table.list_keys(); });
}

Store::Result<std::unique_ptr<Store>> FileStore::clone() {
  auto options = options_;
  options.timeout = timeout();
  auto store = open(options);
  if (!store) return store.error();
  return std::unique_ptr<Store>(std::move(*store));
}

}  // namespace cohort::store
