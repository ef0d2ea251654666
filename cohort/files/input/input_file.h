/// InputFile: a file that is mapped into memory, with errors that name the file and the position in it, and say what was
/// expected.
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
  /// Maps a regular file. If another process shortens it while it is read, SIGBUS ends this program; so copy files that others
  /// may change (base::read_file).
  static base::Result<InputFile> map(const std::string& path);
  /// Uses bytes from elsewhere, such as from an archive or a test. They must outlive the InputFile.
  static InputFile view(std::string name, std::string_view bytes);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

  /// Returns the bytes [offset, offset + size), or an error that says how many bytes of `what` were expected. Any numbers are
  /// allowed.
  base::Result<std::string_view> take(uint64_t offset, uint64_t size, std::string_view what) const;
  /// Returns the error `"train.idx", at byte 4: expected a number of images, but found 0`.
  base::Error error_at(uint64_t offset, std::string_view expected, std::string_view found) const;

 private:
  InputFile() = default;
  std::string path_;
  std::string_view bytes_;
  bool is_mapped_ = false;
};

}  // namespace cohort::files
