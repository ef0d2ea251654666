/// AtomicFile: a file written piece by piece that appears at its path whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// Whether a file that was written is on the disk, or in the system's memory only: then a power cut may lose it.
enum class Sync : uint8_t { kYes, kNo };

/// Writes to a file at `offset`; other threads may write other parts meanwhile. `path` is for the error. `sync`: whether the
/// file is synced in the end: then the kernel is asked from time to time to begin writing to the disk, and the sync finds
/// little left.
Result<void> write_at(int fd, uint64_t offset, std::string_view data, const std::string& path, Sync sync);

/// A temporary file (mode 0600) in the folder of `path`, without a name where the file system has such files: then nothing
/// is left of it when the process is killed. The destructor removes it unless commit() succeeded.
class AtomicFile {
 public:
  /// A link is followed. Fails when something other than a plain file is at `path`. `sync`: what commit() does.
  static Result<AtomicFile> create(const std::string& path, Sync sync = Sync::kYes);
  AtomicFile(AtomicFile&& other) noexcept = default;
  ~AtomicFile();

  /// Behind what write() wrote before.
  Result<void> write(std::string_view data);
  /// Syncs the file to disk, renames it to the path and syncs the folder. Only its owner may read it, whatever the file that it
  /// replaces allowed.
  Result<void> commit();

  /// Takes room for `size` bytes, where the file system can; the file is that long then. A full disk is found out here.
  Result<void> reserve(uint64_t size);
  /// Gives back what is behind `size` bytes.
  Result<void> truncate(uint64_t size);
  /// Other parts may be written meanwhile by other threads.
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
  /// Where write() goes on.
  uint64_t end_ = 0;
};

/// Replaces `path` by a file with `data` that only its owner may read. After a crash the path holds either the old or the new
/// content.
Result<void> write_file_atomically(const std::string& path, std::string_view data);

}  // namespace cohort::base
