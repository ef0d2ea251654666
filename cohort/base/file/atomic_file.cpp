#include "cohort/base/file/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

Error os_error(const std::string& what, const std::string& path) {
  return Error("cannot " + what + " \"" + path + "\": " + errno_text(errno));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Gives a file without a name a new name beside `path`. Returns an empty text and sets errno if that fails.
std::string name_file(int fd, const std::string& path) {
  const std::string source = "/proc/self/fd/" + std::to_string(fd);
  std::random_device random;
  do {
    const std::string name = path + "." + std::to_string(random());
    if (linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return name;
  } while (errno == EEXIST);
  return "";
}

// A large amount for a disk, but small beside the memory that waits to be written.
constexpr uint64_t kWriteBackBytes = uint64_t{16} << 20;

// Starts the write-back after a write of `size` bytes at `offset`.
void start_write_back(int fd, uint64_t offset, uint64_t size) {
  if (offset / kWriteBackBytes == (offset + size) / kWriteBackBytes) return;
  // Asks for the complete file, because other threads may have written ranges that were left out before. Not every file system
  // supports this; the sync at the end does the rest.
  (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

}  // namespace

Result<void> write_at(int fd, uint64_t offset, std::string_view data, const std::string& path, Sync sync) {
  survive_size_limit();
  const uint64_t begin = offset;
  while (!data.empty()) {
    const ssize_t count = pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return with_space_hint(os_error("write", path), errno, folder_of(path));
    data.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  if (sync == Sync::kYes) start_write_back(fd, begin, offset - begin);
  return {};
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Sync sync) {
  AtomicFile file;
  file.sync_ = sync;
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  file.path_ = error ? path : target.string();
  struct stat info {};
  if (stat(file.path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error("there is something other than a plain file at \"" + path + "\"");
  }
  // Creates a file without a name, so that nothing is left behind if the process is killed while it writes.
  file.fd_.reset(open(folder_of(file.path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.fd_) return file;
  // Not every file system supports files without a name.
  std::string name = file.path_ + ".XXXXXX";
  file.fd_.reset(mkostemp(name.data(), O_CLOEXEC));
  if (!file.fd_) {
    const int reason = errno;
    Error error = os_error("create a file in", folder_of(file.path_));
    if (reason == EMFILE || reason == ENOSPC) return with_space_hint(std::move(error), reason, folder_of(file.path_));
    return std::move(error).with_hint("check that the folder exists and is writable");
  }
  file.temporary_path_ = name;
  return file;
}

AtomicFile::~AtomicFile() {
  if (fd_ && !temporary_path_.empty()) std::remove(temporary_path_.c_str());
}

Result<void> AtomicFile::reserve(uint64_t size) {
  survive_size_limit();
  const std::string folder = folder_of(path_);
  if (auto checked = check_space(folder, size, '"' + path_ + '"'); !checked) return checked;
  const int error = posix_fallocate(fd_.get(), 0, static_cast<off_t>(size));
  if (error == 0 || error == EOPNOTSUPP || error == EINVAL) return {};
  Error problem("cannot take " + format_bytes(size) + " for \"" + path_ + "\": " + errno_text(error));
  return with_space_hint(std::move(problem), error, folder);
}

Result<void> AtomicFile::truncate(uint64_t size) {
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return os_error("set the size of", path_);
  return {};
}

Result<void> AtomicFile::write(std::string_view data) {
  Result<void> done = write_at(end_, data);
  end_ += data.size();
  return done;
}

Result<void> AtomicFile::commit() {
  if (fchmod(fd_.get(), 0600) != 0) return os_error("set the permissions of", path_);
  if (sync_ == Sync::kYes && fsync(fd_.get()) != 0) return os_error("sync", path_);
  if (temporary_path_.empty()) temporary_path_ = name_file(fd_.get(), path_);
  if (temporary_path_.empty()) return os_error("name a file beside", path_);
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) return os_error("rename a file to", path_);
  fd_.reset();
  if (sync_ == Sync::kNo) return {};
  const Fd folder(open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder && fsync(folder.get()) != 0 && errno != EINVAL) return os_error("sync the folder of", path_);
  return {};
}

Result<void> write_file_atomically(const std::string& path, std::string_view data) {
  Result<AtomicFile> file = AtomicFile::create(path);
  Result<void> done = file ? file->write(data) : Result<void>(file.error());
  if (done) done = file->commit();
  if (!done) return Error("cannot write \"" + path + "\"").caused_by(done.error());
  return done;
}

}  // namespace cohort::base
