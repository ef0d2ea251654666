/// Files: an owned descriptor, reading complete files, replacing files so that a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// An open file descriptor, closed by the destructor. -1 means none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// The two ends of a pipe, closed on exec and never one of the standard descriptors 0, 1 and 2.
struct Pipe {
  Fd read_end;
  Fd write_end;
};
Result<Pipe> make_pipe();

/// Reads a complete regular file (open_file.h). Works for files in /proc, whose size is not known beforehand. Fails if the file
/// has more than `limit` bytes.
Result<std::string> read_file(const std::string& path, size_t limit = size_t{64} << 20);

/// Writes every byte and goes on after interruptions and short writes. Errors name the file `name`.
Result<void> write_all(int fd, std::string_view data, const std::string& name = {});

/// The folder for temporary files: TMPDIR, or /tmp if that is not set or is empty.
std::string temporary_folder();

/// Opens a regular file for writing, empties it, and creates it with mode 0600 if needed; closed on exec.
Result<Fd> open_for_writing(const std::string& path);

/// Creates the folder and those above it. Succeeds if it is there already.
Result<void> make_directories(const std::string& path);

/// Creates a folder named `<prefix>XXXXXX` with mode 0700 and returns its path.
Result<std::string> make_unique_directory(const std::string& prefix);

}  // namespace cohort::base
