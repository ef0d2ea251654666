/// FileLog: the file of a FileStore, to which entries are only added. Several processes read and write it in turn (flock).
/// Private to this folder.
///
/// The format is that of c10d's FileStore (torch/csrc/distributed/c10d/FileStore.cpp of PyTorch 2.13): an entry is a key and a
/// value, each a length (4 bytes, little-endian) and its bytes. If a writer dies in the middle of an entry, readers stop before
/// the incomplete entry, and the next writer removes it.
/// Thread-safety: one thread at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::store {

struct LogEntry {
  std::string key;
  std::string value;
};

std::string encode_entry(const LogEntry& entry);
/// Reads the complete entries at the beginning of `bytes`. Returns the number of their bytes. Pure.
size_t take_entries(std::string_view bytes, const std::function<void(LogEntry entry)>& take);

class FileLog {
 public:
  /// Opens the file, or creates it for its owner only. Errors: it belongs to another user, or others may write to it.
  static base::Result<FileLog> open(const std::string& path);

  enum class Access { kRead, kWrite };
  /// Holds a lock until it is destroyed.
  class Lock {
   public:
    explicit Lock(int file) : file_(file) {}
    Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    ~Lock();

   private:
    int file_;
  };
  /// Waits until no other process holds a lock that excludes this one.
  base::Result<Lock> lock(Access access, std::chrono::milliseconds timeout);

  /// Reads the entries that were not read before. Requires a lock. An error is final: the file is gone, or does not belong to a
  /// store.
  base::Result<std::vector<LogEntry>> read_new();
  /// Appends entries. Requires a lock for writing, and that all entries have been read.
  base::Result<void> append(const std::string& entries);
  /// Removes the file. Requires a lock.
  void remove_file() const;
  /// Whether the path may name another file by now, or no file.
  bool is_removed() const;
  /// Makes read_new() begin at the start again.
  void rewind() { position_ = 0; }

 private:
  FileLog(std::string path, base::Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  base::Error failed(const char* what) const;

  std::string path_;
  base::Fd file_;
  off_t position_ = 0;  ///< the first byte that has not been parsed yet
};

}  // namespace cohort::store
