/// AppendFile: a file that grows by whole records.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::report {

/// Makes the folder and those above it that are missing, for their owner only. "": the present one, which is there.
base::Result<void> make_private_folder(const std::string& path);

/// Thread-safety: one thread at a time.
class AppendFile {
 public:
  enum class Start {
    kNew,    ///< fails where a file is
    kEmpty,  ///< what is there is forgotten
    kGoOn,
  };
  /// Mode 0600, also where the file was there. Fails for what is not a plain file.
  static base::Result<AppendFile> open(const std::string& path, Start start);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// One write at the file's end. What a failure has written of it is cut off again.
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
