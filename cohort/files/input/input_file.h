/// InputFile: a file that is read where it lies in memory, and errors that say which file, where in it, and what was expected.
///
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::files {

class InputFile {
 public:
  /// Maps a regular file. Whoever shortens it while it is read ends the program by SIGBUS: copy what others may change
  /// (base::read_file).
  static base::Result<InputFile> map(const std::string& path);
  /// Bytes that came by another way, such as out of an archive or a test. They must outlive the InputFile.
  static InputFile view(std::string name, std::string_view bytes);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

  /// [offset, offset + size), or an error that says how many bytes of `what` were expected. No numbers are too large.
  base::Result<std::string_view> take(uint64_t offset, uint64_t size, std::string_view what) const;
  /// `"train.idx", at byte 4: expected a number of images, but found 0`
  base::Error error_at(uint64_t offset, std::string_view expected, std::string_view found) const;

 private:
  InputFile() = default;
  std::string path_;
  std::string_view bytes_;
  bool is_mapped_ = false;
};

}  // namespace cohort::files
