/// AtomicFile: a file written piece by piece that appears at its path whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/file.h"
#include "cohort/base/result.h"

namespace cohort::checkpoint {

/// A temporary file (mode 0600) in the folder of `path`, without a name where the file system has such files: then nothing
/// is left of it when the process is killed. The destructor removes it unless commit() succeeded.
class AtomicFile {
 public:
  /// A link is followed. Fails when something other than a plain file is at `path`.
  static base::Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  ~AtomicFile();

  base::Result<void> write(std::string_view data) { return base::write_all(fd_.get(), data); }
  /// Syncs the file to disk, gives it the permissions of the one it replaces (or the process's default), renames it to
  /// the path and syncs the folder.
  base::Result<void> commit();

 private:
  AtomicFile() = default;
  std::string path_;
  /// Empty while the file has no name.
  std::string temporary_path_;
  base::Fd fd_;
};

}  // namespace cohort::checkpoint
