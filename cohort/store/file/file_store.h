/// FileStore: a store in a file that processes share, on one host or on a file system that supports flock (NFS does).
///
/// The file has the format of c10d's FileStore, so PyTorch's processes can share it: values, add, delete, barrier and the count
/// of users. Only Cohort's processes have queues. The file belongs to one user, who alone may read it, and grows with every
/// change. If a process dies while it writes, only that change is lost. Waiting polls every few milliseconds.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/store/file/file_log.h"
#include "cohort/store/keys/store.h"
#include "cohort/store/keys/table.h"

namespace cohort::store {

struct FileStoreOptions {
  std::string path;
  /// The number of workers; -1 keeps the file. Once this many stores on the file have ended and none is left, the last one
  /// removes it.
  int num_workers = -1;
  /// The initial timeout() of the store; also the limit for waiting for a lock that another process holds.
  std::chrono::milliseconds timeout = Store::kDefaultTimeout;
};

class FileStore final : public Store {
 public:
  /// Opens the file, or creates it. Errors name the file and say why it cannot be used.
  static Result<std::unique_ptr<FileStore>> open(const FileStoreOptions& options);
  ~FileStore() override;

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
  /// Opens the file once more, which counts as another user.
  Result<std::unique_ptr<Store>> clone() override;

 private:
  FileStore(const FileStoreOptions& options, FileLog log) : options_(options), log_(std::move(log)) {}
  static std::unique_ptr<Table> empty_table();

  /// Calls `use` to read the table, which is up to date.
  template <class Use>
  auto with_table(const Use& use) -> decltype(use(std::declval<const Table&>()));
  /// Calls `use` to change the table; it also returns the entries that tell other processes of the change.
  template <class Use>
  auto with_log(const Use& use) -> decltype(use(std::declval<Table&>(), std::declval<std::string*>()));
  Result<void> catch_up();
  Result<void> apply(LogEntry entry);
  Result<void> leave();

  const FileStoreOptions options_;
  std::mutex mutex_;
  FileLog log_;
  std::unique_ptr<Table> table_ = empty_table();
  /// PyTorch's entries that are not values: the count of the file's users.
  std::unique_ptr<Table> counts_ = empty_table();
  /// The reason why the file can no longer be used.
  std::optional<base::Error> failure_;
};

}  // namespace cohort::store
