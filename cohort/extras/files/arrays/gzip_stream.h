/// GzipStream: the content of a .gz file, in pieces that the reader asks for, so that no file unpacks to more than is wanted.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

/// No byte of a deflated file can stand for more than so many.
inline constexpr uint64_t kMostDeflated = 1032;

class GzipStream {
 public:
  /// Whether the file begins as gzip's do.
  static bool is_gzip(const RandomAccessFile& file);

  explicit GzipStream(RandomAccessFile file);
  GzipStream(GzipStream&&) noexcept;
  ~GzipStream();

  /// Fills `to`. An error that names `what` if the content ends before, or is damaged.
  base::Result<void> read(std::span<char> to, std::string_view what);
  /// An error if there is more, or if its checksum is wrong.
  base::Result<void> expect_end();
  /// Of the content; how many bytes have been read.
  uint64_t position() const { return position_; }

 private:
  struct State;
  base::Result<size_t> read_some(std::span<char> to);

  std::unique_ptr<State> state_;
  uint64_t position_ = 0;
};

}  // namespace cohort::files
