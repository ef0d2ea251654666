#include "cohort/report/records/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::report {

base::Result<void> make_private_folder(const std::string& path) {
  struct stat info {};
  if (path.empty() || (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) return {};
  const size_t slash = path.find_last_of('/');
  if (slash != std::string::npos && slash > 0) {
    if (auto made = make_private_folder(path.substr(0, slash)); !made) return made.error();
  }
  if (slash == path.size() - 1 || ::mkdir(path.c_str(), 0700) == 0) return {};
  const int error = errno;
  if (error == EEXIST && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return {};  // another process was faster
  return base::Error(fmt::format("cannot create the folder \"{}\": {}", path, base::errno_text(error)));
}

base::Result<AppendFile> AppendFile::open(const std::string& path, Start start) {
  AppendFile file;
  file.path_ = path;
  const int how = start == Start::kNew ? O_EXCL : start == Start::kEmpty ? O_TRUNC : 0;
  file.fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | how, 0600));
  if (!file.fd_) return file.failed("cannot open");
  struct stat info {};
  if (::fstat(file.fd_.get(), &info) != 0) return file.failed("cannot look at");
  if (!S_ISREG(info.st_mode)) return base::Error(fmt::format("cannot write \"{}\": it is not a plain file", path));
  if ((info.st_mode & 0777) != 0600 && ::fchmod(file.fd_.get(), 0600) != 0) return file.failed("cannot protect");
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

base::Result<void> AppendFile::append(std::string_view bytes) {
  if (auto written = base::write_all(fd_.get(), bytes, path_); !written) {
    [[maybe_unused]] const int is_cut = ::ftruncate(fd_.get(), static_cast<off_t>(size_));
    return written.error();
  }
  size_ += bytes.size();
  return {};
}

base::Result<void> AppendFile::cut_to(uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return failed("cannot shorten");
  size_ = size;
  return {};
}

base::Result<void> AppendFile::sync() {
  if (::fdatasync(fd_.get()) != 0) return failed("cannot sync");
  return {};
}

base::Error AppendFile::failed(const char* what) const {
  return base::Error(fmt::format("{} \"{}\": {}", what, path_, base::errno_text(errno)));
}

}  // namespace cohort::report
