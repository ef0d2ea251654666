/// RandomAccessFile: a file whose bytes are copied when they are requested. So its size does not matter, and a file that is
/// shortened meanwhile is an ordinary error (a mapped file would give SIGBUS).
///
/// Thread-safety: const; any number of threads may read (pread uses no shared position). Copies share the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::files {

class RandomAccessFile {
 public:
  /// Opens a regular file.
  static base::Result<RandomAccessFile> open(const std::string& path);
  /// Uses bytes from elsewhere, such as from a test. They must outlive the RandomAccessFile.
  static RandomAccessFile view(std::string name, std::string_view bytes);

  /// Returns the `size` bytes from `offset` on as a file, such as one record of many. Offsets in errors count from there.
  /// Requires that the range is inside the file.
  RandomAccessFile slice(uint64_t offset, uint64_t size) const;

  const std::string& path() const { return path_; }
  /// The size in bytes when it was opened.
  uint64_t size() const { return size_; }
  /// The descriptor; -1 for a view.
  int descriptor() const { return fd_ ? fd_->get() : -1; }

  /// Copies bytes from `offset` on until `to` is full. Returns an error that names `what` if the file has fewer.
  base::Result<void> read(uint64_t offset, std::span<char> to, std::string_view what) const;
  /// Reads into a string. Allocates no memory for bytes that the file does not have.
  base::Result<std::string> read(uint64_t offset, uint64_t size, std::string_view what) const;

  /// Returns the error `"train.idx", at byte 4: expected a number of images, but found 0`.
  base::Error error_at(uint64_t offset, std::string_view expected, std::string_view found) const;

 private:
  RandomAccessFile() = default;
  base::Result<void> check_range(uint64_t offset, uint64_t size, std::string_view what) const;

  std::string path_;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  std::shared_ptr<const base::Fd> fd_;  ///< null if bytes_ has the content
  std::string_view bytes_;
};

}  // namespace cohort::files
