/// AtomicFile: a file that is written piece by piece and appears at its path complete or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// Whether a written file is synced to the disk. With kNo it may be in the system's memory only, and a power cut may lose it.
enum class Sync : uint8_t { kYes, kNo };

/// Writes to a file at `offset`. Other threads may write other ranges at the same time. Errors name `path`. `sync` says whether
/// the file is synced in the end: if so, this asks the kernel from time to time to begin writing to the disk, so that the sync
/// has little left to do.
Result<void> write_at(int fd, uint64_t offset, std::string_view data, const std::string& path, Sync sync);

/// A temporary file (mode 0600) in the folder of `path`. It has no name if the file system supports that, so that nothing is left
/// if the process is killed. The destructor removes it unless commit() succeeded.
class AtomicFile {
 public:
  /// Follows a link. Fails if something other than a regular file is at `path`. `sync` decides what commit() does.
  static Result<AtomicFile> create(const std::string& path, Sync sync = Sync::kYes);
  AtomicFile(AtomicFile&& other) noexcept = default;
  ~AtomicFile();

  /// Appends to what write() has written before.
  Result<void> write(std::string_view data);
  /// Syncs the file to disk, renames it to the path and syncs the folder. Only the file's owner may read it, even if the file
  /// that it replaces allowed more.
  Result<void> commit();

  /// Reserves `size` bytes if the file system supports it; the file then has this length. A full disk is an error here.
  Result<void> reserve(uint64_t size);
  /// Frees what is behind `size` bytes.
  Result<void> truncate(uint64_t size);
  /// Writes at `offset`. Other threads may write other ranges at the same time.
  Result<void> write_at(uint64_t offset, std::string_view data) {
    return base::write_at(fd_.get(), offset, data, path_, sync_);
  }

 private:
  AtomicFile() = default;
  std::string path_;
  /// Empty while the file has no name.
  std::string temporary_path_;
  Fd fd_;
  Sync sync_ = Sync::kYes;
  /// The offset at which write() goes on.
  uint64_t end_ = 0;
};

/// Replaces `path` with a file of `data` that only its owner may read. After a crash the path has either the old or the new
/// content.
Result<void> write_file_atomically(const std::string& path, std::string_view data);

}  // namespace cohort::base
