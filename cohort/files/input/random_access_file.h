/// RandomAccessFile: a file whose bytes are copied out of it when they are asked for, so that its size does not matter and
/// nothing ends the program when somebody shortens the file meanwhile: that is an error like any other (a mapped file would
/// give SIGBUS).
///
/// Thread-safety: const; any number of threads may read (pread has no position that they would share). Copies share the file.
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
  /// Bytes that came by another way, such as from a test. They must outlive the RandomAccessFile.
  static RandomAccessFile view(std::string name, std::string_view bytes);

  /// The same file as if it had only the `size` bytes from `offset` on, such as one record of many; offsets in errors count from
  /// there. Requires: they lie in the file.
  RandomAccessFile slice(uint64_t offset, uint64_t size) const;

  const std::string& path() const { return path_; }
  /// In bytes, when it was opened.
  uint64_t size() const { return size_; }
  /// Its descriptor; -1 for a view.
  int descriptor() const { return fd_ ? fd_->get() : -1; }

  /// Copies the bytes from `offset` on, as many as `to` holds; an error that names `what` unless the file has them all.
  base::Result<void> read(uint64_t offset, std::span<char> to, std::string_view what) const;
  /// The same as a string. Nothing is allocated for bytes that the file does not have.
  base::Result<std::string> read(uint64_t offset, uint64_t size, std::string_view what) const;

  /// `"train.idx", at byte 4: expected a number of images, but found 0`
  base::Error error_at(uint64_t offset, std::string_view expected, std::string_view found) const;

 private:
  RandomAccessFile() = default;
  base::Result<void> check_range(uint64_t offset, uint64_t size, std::string_view what) const;

  std::string path_;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  std::shared_ptr<const base::Fd> fd_;  ///< null: bytes_ are all there is
  std::string_view bytes_;
};

}  // namespace cohort::files
