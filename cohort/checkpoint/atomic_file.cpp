#include "cohort/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

using base::Error;
using base::Result;

Error os_error(const std::string& what, const std::string& path) {
  return Error("cannot " + what + " \"" + path + "\": " + base::errno_text(errno));
}

// umask() can only be read by setting it, which other threads would notice; the kernel tells it here.
mode_t default_mode() {
  const Result<std::string> status = base::read_file("/proc/self/status");
  const size_t place = status ? status->find("\nUmask:") : std::string::npos;
  if (place == std::string::npos) return 0600;
  return 0666 & ~static_cast<mode_t>(std::strtoul(status->c_str() + place + 7, nullptr, 8));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  file.path_ = error ? path : target.string();
  struct stat info {};
  if (stat(file.path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error("there is something other than a plain file at \"" + path + "\"");
  }
  std::string name = file.path_ + ".XXXXXX";
  file.fd_.reset(mkostemp(name.data(), O_CLOEXEC));
  if (!file.fd_) {
    return os_error("create a file in", folder_of(file.path_))
        .with_hint("check that the folder exists and is writable");
  }
  file.temporary_path_ = name;
  return file;
}

AtomicFile::~AtomicFile() {
  if (fd_) std::remove(temporary_path_.c_str());
}

Result<void> AtomicFile::commit() {
  struct stat info {};
  const mode_t mode = stat(path_.c_str(), &info) == 0 ? info.st_mode & 07777 : default_mode();
  if (fchmod(fd_.get(), mode) != 0) return os_error("set the permissions of", temporary_path_);
  if (fsync(fd_.get()) != 0) return os_error("sync", temporary_path_);
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) return os_error("rename a file to", path_);
  fd_.reset();
  const base::Fd folder(open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder && fsync(folder.get()) != 0 && errno != EINVAL) return os_error("sync the folder of", path_);
  return {};
}

}  // namespace cohort::checkpoint
