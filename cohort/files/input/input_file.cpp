#include "cohort/files/input/input_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"

namespace cohort::files {

base::Result<InputFile> InputFile::map(const std::string& path) {
  const auto fail = [&](const std::string& reason) {
    return base::Error(fmt::format("cannot read \"{}\": {}", path, reason));
  };
  const auto fd = base::open_regular_file(path);
  if (!fd) return fail(fd.error().message());
  struct stat info {};
  if (fstat(fd->get(), &info) != 0) return fail(base::errno_text(errno));
  InputFile file;
  file.path_ = path;
  if (info.st_size == 0) return file;
  const auto size = static_cast<size_t>(info.st_size);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd->get(), 0);
  if (data == MAP_FAILED) return fail(base::errno_text(errno));
  file.bytes_ = {static_cast<const char*>(data), size};
  file.is_mapped_ = true;
  return file;
}

InputFile InputFile::view(std::string name, std::string_view bytes) {
  InputFile file;
  file.path_ = std::move(name);
  file.bytes_ = bytes;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept { *this = std::move(other); }

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_mapped_, other.is_mapped_);
  return *this;
}

InputFile::~InputFile() {
  if (is_mapped_) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

base::Result<std::string_view> InputFile::take(uint64_t offset, uint64_t size, std::string_view what) const {
  if (offset <= bytes_.size() && size <= bytes_.size() - offset) return bytes_.substr(offset, size);
  return error_at(offset, fmt::format("{} bytes of {}", size, what),
                  offset < bytes_.size() ? fmt::format("only {} before the end of the file", bytes_.size() - offset)
                                         : "the end of the file");
}

base::Error InputFile::error_at(uint64_t offset, std::string_view expected, std::string_view found) const {
  return base::Error(fmt::format("\"{}\", at byte {}: expected {}, but found {}", path_, offset, expected, found));
}

}  // namespace cohort::files
