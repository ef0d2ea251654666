#include "cohort/store/file/file_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cohort/base/text/text.h"
#include "cohort/store/keys/waiting.h"
#include "cohort/store/tcp/protocol.h"

namespace cohort::store {
namespace {

using base::Error;

constexpr size_t kPiece = size_t{1} << 20;

// Reads a length and its bytes at `position`. Returns false if they are incomplete.
bool take_text(std::string_view bytes, size_t* position, std::string* text) {
  if (bytes.size() - *position < 4) return false;
  size_t size = 0;
  for (size_t i = 4; i-- > 0;) size = size << 8 | static_cast<uint8_t>(bytes[*position + i]);
  if (bytes.size() - *position - 4 < size) return false;
  *text = bytes.substr(*position + 4, size);
  *position += 4 + size;
  return true;
}

base::Result<void> check_owner(const std::string& path, int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return Error(fmt::format("cannot look at \"{}\": {}", path, base::errno_text(errno)));
  if (!S_ISREG(info.st_mode)) return Error(fmt::format("\"{}\" is not a regular file", path));
  if (info.st_uid != geteuid()) {
    return Error(fmt::format("\"{}\" belongs to user {}, not to user {}", path, info.st_uid, geteuid()))
        .with_hint("choose a path of your own");
  }
  if (info.st_mode & (S_IWGRP | S_IWOTH)) {
    return Error(fmt::format("\"{}\" can be written by other users", path))
        .with_hint("run chmod go-w on it, or delete it");
  }
  return {};
}

}  // namespace

std::string encode_entry(const LogEntry& entry) {
  std::string bytes;
  put_number(&bytes, entry.key.size(), 4);
  bytes += entry.key;
  put_number(&bytes, entry.value.size(), 4);
  return bytes += entry.value;
}

size_t take_entries(std::string_view bytes, const std::function<void(LogEntry entry)>& take) {
  size_t taken = 0;
  size_t position = 0;
  LogEntry entry;
  while (take_text(bytes, &position, &entry.key) && take_text(bytes, &position, &entry.value)) {
    taken = position;
    take(std::move(entry));
  }
  return taken;
}

base::Result<FileLog> FileLog::open(const std::string& path) {
  base::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
  if (!file) {
    return Error(fmt::format("cannot open \"{}\": {}", path, base::errno_text(errno)))
        .with_hint("create the folder, and let all processes write to it");
  }
  if (auto checked = check_owner(path, file.get()); !checked) return checked.error();
  return FileLog(path, std::move(file));
}

FileLog::Lock::~Lock() {
  if (file_ >= 0) flock(file_, LOCK_UN);
}

Error FileLog::failed(const char* what) const {
  return Error(fmt::format("cannot {} \"{}\": {}", what, path_, base::errno_text(errno)));
}

base::Result<FileLog::Lock> FileLog::lock(Access access, std::chrono::milliseconds timeout) {
  const int operation = (access == Access::kWrite ? LOCK_EX : LOCK_SH) | LOCK_NB;
  // Polls with short pauses: other processes hold the lock for microseconds, and processes that wait in the kernel would always
  // win.
  Pauses pauses(timeout, std::chrono::milliseconds(1));
  while (flock(file_.get(), operation) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return failed("lock");
    if (!pauses.rest()) {
      return Error(fmt::format("\"{}\" was locked by another process for {}", path_, base::format_duration(timeout)))
          .with_hint("see whether a process that shares it is stopped");
    }
  }
  return Lock(file_.get());
}

base::Result<std::vector<LogEntry>> FileLog::read_new() {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return failed("look at");
  if (is_removed() || info.st_size < position_) {
    return Error(fmt::format("\"{}\" was removed or truncated while it was in use", path_));
  }
  std::vector<LogEntry> entries;
  std::string bytes;
  const auto take = [&](LogEntry entry) { entries.push_back(std::move(entry)); };
  for (auto next = position_; next < info.st_size;) {
    const auto before = bytes.size();
    bytes.resize(before + std::min(kPiece, static_cast<size_t>(info.st_size - next)));
    const auto size = pread(file_.get(), bytes.data() + before, bytes.size() - before, next);
    if (size < 0 && errno != EINTR) return failed("read");
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(size, 0)));
    if (size == 0) break;
    next += std::max<ssize_t>(size, 0);
    const auto taken = take_entries(bytes, take);
    bytes.erase(0, taken);
    position_ += static_cast<off_t>(taken);
  }
  return entries;
}

base::Result<void> FileLog::append(const std::string& entries) {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return failed("look at");
  if (info.st_size > position_) {
    // A file that does not begin with an entry belongs to somebody else and must not be truncated.
    if (position_ == 0)
      return Error(fmt::format("\"{}\" is not the file of a store", path_)).with_hint("choose another path");
    if (ftruncate(file_.get(), position_) != 0) return failed("repair");
  }
  for (size_t written = 0; written < entries.size();) {
    const auto size = pwrite(file_.get(), entries.data() + written, entries.size() - written,
                             position_ + static_cast<off_t>(written));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      auto error = failed("write to");
      (void)!ftruncate(file_.get(), position_);
      return error;
    }
    written += static_cast<size_t>(size);
  }
  position_ += static_cast<off_t>(entries.size());
  return {};
}

void FileLog::remove_file() const { ::unlink(path_.c_str()); }

bool FileLog::is_removed() const {
  struct stat info {};
  return fstat(file_.get(), &info) == 0 && info.st_nlink == 0;
}

}  // namespace cohort::store
