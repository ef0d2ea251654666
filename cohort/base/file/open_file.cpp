#include "cohort/base/file/open_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cohort/base/text/text.h"

namespace cohort::base {

Result<Fd> open_regular_file(const std::string& path, int flags, mode_t mode) {
  Fd fd(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) return Error(errno_text(errno));
  if (!S_ISREG(info.st_mode)) return Error(S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file");
  return fd;
}

Result<std::vector<std::string>> names_in_folder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return Error(errno_text(error.value()));
  std::sort(names.begin(), names.end());
  return names;
}

void open_standard_streams() {
  // open() takes the lowest free number, and each below `fd` is taken.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);
  }
}

}  // namespace cohort::base
