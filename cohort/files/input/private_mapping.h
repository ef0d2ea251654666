/// PrivateMapping: a file mapped into memory that can be written without changing the file (copy on write). Pages are read when
/// they are first touched.
///
/// If another process shortens the file while it is mapped, touching a page that is gone ends this program with SIGBUS. Files
/// that are replaced, as base::AtomicFile does, stay as they were.
///
/// Thread-safety: const.
#pragma once

#include <memory>
#include <span>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

class PrivateMapping {
 public:
  /// Maps the complete file. Requires that it is not a view.
  static base::Result<std::shared_ptr<const PrivateMapping>> map(const RandomAccessFile& file);
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;
  ~PrivateMapping();

  std::span<char> bytes() const { return bytes_; }

 private:
  explicit PrivateMapping(std::span<char> bytes) : bytes_(bytes) {}
  std::span<char> bytes_;
};

}  // namespace cohort::files
