#include "cohort/base/file/file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

Error file_error(const char* action, const std::string& path, const std::string& reason = errno_text(errno)) {
  return Error(fmt::format("cannot {} \"{}\": {}", action, path, reason));
}

}  // namespace

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error(fmt::format("cannot make a pipe: {}", errno_text(errno)));
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  // If a program was started with closed standard streams, the lowest free numbers belong to them.
  for (Fd* end : {&pipe.read_end, &pipe.write_end}) {
    if (end->get() > STDERR_FILENO) continue;
    end->reset(::fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!*end) return Error(fmt::format("cannot make a pipe: {}", errno_text(errno)));
  }
  return pipe;
}

Result<std::string> read_file(const std::string& path, size_t limit) {
  const Result<Fd> file = open_regular_file(path);
  if (!file) return file_error("open", path, file.error().message());
  const Fd& fd = *file;
  std::string text;
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && info.st_size > 0) {
    const auto size = static_cast<size_t>(info.st_size);
    if (size > limit) return Error(fmt::format("\"{}\" has more than {}", path, format_bytes(limit)));
    text.reserve(size + 1);
  }
  std::vector<char> buffer(size_t{64} * 1024);  // not on the stack, which may be limited to less (ulimit -s)
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("read", path);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > limit) return Error(fmt::format("\"{}\" has more than {}", path, format_bytes(limit)));
  }
}

std::string temporary_folder() {
  const auto folder = get_env("TMPDIR").value_or("");
  return folder.empty() ? "/tmp" : folder;
}

Result<void> write_all(int fd, std::string_view data, const std::string& name) {
  survive_size_limit();
  while (!data.empty()) {
    const ssize_t count = ::write(fd, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int reason = errno;
      Error error(fmt::format("cannot write {} to {}: {}", format_bytes(data.size()),
                              name.empty() ? fmt::format("descriptor {}", fd) : '"' + name + '"', errno_text(reason)));
      return reason == EFBIG ? with_space_hint(std::move(error), reason, "") : error;
    }
    data.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Result<Fd> open_for_writing(const std::string& path) {
  Result<Fd> fd = open_regular_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  return fd ? std::move(fd) : file_error("open", path, fd.error().message());
}

Result<void> make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return file_error("create folder", path, errno_text(error.value()));
  return {};
}

Result<std::string> make_unique_directory(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (!::mkdtemp(path.data())) return file_error("create folder", path);
  return path;
}

}  // namespace cohort::base
