/// FileLog: the file of a FileStore: entries that are only ever added, read and written by several processes in turn (flock).
/// Private to this folder.
///
/// The format is that of c10d's FileStore (torch/csrc/distributed/c10d/FileStore.cpp of PyTorch 2.13): an entry is a key and a
/// value, each a length (4 bytes, little-endian) and its bytes. A writer that dies in the middle leaves the beginning of an entry
/// behind: readers stop before it, the next writer cuts it off.
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
/// Takes the whole entries at the beginning of `bytes`. Returns: how many bytes they had. Pure.
size_t take_entries(std::string_view bytes, const std::function<void(LogEntry entry)>& take);

class FileLog {
 public:
  /// Creates the file, for its owner alone, where there is none. Errors: it belongs to another user, or others may write to it.
  static base::Result<FileLog> open(const std::string& path);

  enum class Access { kRead, kWrite };
  /// Ends the access when it is destroyed.
  class Lock {
   public:
    explicit Lock(int file) : file_(file) {}
    Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    ~Lock();

   private:
    int file_;
  };
  /// Waits until no other process has an access that excludes this one.
  base::Result<Lock> lock(Access access, std::chrono::milliseconds timeout);

  /// Requires a lock. Entries that were not read before. An error is final: the file is gone, or no store's.
  base::Result<std::vector<LogEntry>> read_new();
  /// Requires a lock for writing, and that all has been read.
  base::Result<void> append(const std::string& entries);
  /// Requires a lock.
  void remove_file() const;
  /// Whether the path may name another file by now, or none.
  bool is_removed() const;
  /// read_new() begins again.
  void rewind() { position_ = 0; }

 private:
  FileLog(std::string path, base::Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  base::Error failed(const char* what) const;

  std::string path_;
  base::Fd file_;
  off_t position_ = 0;  ///< of the first byte that was not understood yet
};

}  // namespace cohort::store
