/// AppendFile: a file to which complete records are appended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::report {

/// Creates the folder and missing ones above it, for their owner only. "" means the current folder, which exists.
base::Result<void> make_private_folder(const std::string& path);

/// Thread-safety: one thread at a time.
class AppendFile {
 public:
  enum class Start {
    kNew,    ///< fails if the file exists
    kEmpty,  ///< discards existing content
    kGoOn,
  };
  /// Opens the file with mode 0600, also if it exists. Fails if it is not a regular file.
  static base::Result<AppendFile> open(const std::string& path, Start start);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Appends with one write. If that fails, removes the part that was written.
  base::Result<void> append(std::string_view bytes);
  base::Result<void> cut_to(uint64_t size);
  base::Result<void> sync();

 private:
  AppendFile() = default;
  base::Error failed(const char* what) const;
  base::Fd fd_;
  std::string path_;
  uint64_t size_ = 0;
};

}  // namespace cohort::report
