/// GzipStream: unpacks a .gz file in pieces of the reader's choice, so that it never unpacks more than the reader wants.
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

/// The largest number of bytes that one byte of a deflated file can produce.
inline constexpr uint64_t kMostDeflated = 1032;

class GzipStream {
 public:
  /// Whether the file begins with gzip's magic number.
  static bool is_gzip(const RandomAccessFile& file);

  explicit GzipStream(RandomAccessFile file);
  GzipStream(GzipStream&&) noexcept;
  ~GzipStream();

  /// Fills `to`. Fails, naming `what`, if the content ends before, or is damaged.
  base::Result<void> read(std::span<char> to, std::string_view what);
  /// Fails if there is more content, or if its checksum is wrong.
  base::Result<void> expect_end();
  /// The number of bytes of the content that have been read.
  uint64_t position() const { return position_; }

 private:
  struct State;
  base::Result<size_t> read_some(std::span<char> to);

  std::unique_ptr<State> state_;
  uint64_t position_ = 0;
};

}  // namespace cohort::files
