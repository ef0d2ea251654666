#include "cohort/files/input/random_access_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"

namespace cohort::files {

base::Result<RandomAccessFile> RandomAccessFile::open(const std::string& path) {
  const auto fail = [&](const std::string& reason) {
    return base::Error(fmt::format("cannot read \"{}\": {}", path, reason));
  };
  auto fd = base::open_regular_file(path);
  if (!fd) return fail(fd.error().message());
  struct stat info {};
  if (fstat(fd->get(), &info) != 0) return fail(base::errno_text(errno));
  RandomAccessFile file;
  file.path_ = path;
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.fd_ = std::make_shared<const base::Fd>(std::move(*fd));
  return file;
}

RandomAccessFile RandomAccessFile::view(std::string name, std::string_view bytes) {
  RandomAccessFile file;
  file.path_ = std::move(name);
  file.size_ = bytes.size();
  file.bytes_ = bytes;
  return file;
}

RandomAccessFile RandomAccessFile::slice(uint64_t offset, uint64_t size) const {
  RandomAccessFile part = *this;
  part.begin_ += offset;
  part.size_ = size;
  return part;
}

base::Result<void> RandomAccessFile::check_range(uint64_t offset, uint64_t size, std::string_view what) const {
  if (offset <= size_ && size <= size_ - offset) return {};
  return error_at(
      offset, fmt::format("{} bytes of {}", size, what),
      offset < size_ ? fmt::format("only {} before the end of the file", size_ - offset) : "the end of the file");
}

base::Result<void> RandomAccessFile::read(uint64_t offset, std::span<char> to, std::string_view what) const {
  if (auto checked = check_range(offset, to.size(), what); !checked) return checked;
  if (to.empty()) return {};
  if (!fd_) {
    std::memcpy(to.data(), bytes_.data() + begin_ + offset, to.size());
    return {};
  }
  while (!to.empty()) {
    const ssize_t count = ::pread(fd_->get(), to.data(), to.size(), static_cast<off_t>(begin_ + offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::Error(fmt::format("cannot read \"{}\": {}", path_, base::errno_text(errno)));
    if (count == 0) {
      return error_at(offset, fmt::format("{} more bytes of {}", to.size(), what),
                      fmt::format("the end of the file, which had {} bytes when it was opened: it has been shortened "
                                  "while it was read",
                                  size_));
    }
    to = to.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

base::Result<std::string> RandomAccessFile::read(uint64_t offset, uint64_t size, std::string_view what) const {
  if (auto checked = check_range(offset, size, what); !checked) return checked.error();
  std::string bytes(size, '\0');
  if (auto done = read(offset, std::span(bytes), what); !done) return done.error();
  return bytes;
}

base::Error RandomAccessFile::error_at(uint64_t offset, std::string_view expected, std::string_view found) const {
  return base::Error(fmt::format("\"{}\", at byte {}: expected {}, but found {}", path_, offset, expected, found));
}

}  // namespace cohort::files
