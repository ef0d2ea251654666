#include "cohort/files/checkpoints/file_checksum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/files/tensors/crc32.h"

namespace cohort::files {
namespace {

// Fits into a core's second cache, where the checksum finds it.
constexpr size_t kPieceBytes = size_t{256} << 10;

base::Error checksum_error(const char* action, const std::string& path) {
  return base::Error(fmt::format("cannot {} \"{}\": {}", action, path, base::errno_text(errno)));
}

}  // namespace

base::Result<FileChecksum> checksum_of_file(const std::string& path, SyncFile sync) {
  // O_NONBLOCK: a pipe in the place of a file must not hold us up.
  const base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return checksum_error("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return checksum_error("look at", path);
  if (!S_ISREG(info.st_mode)) return base::Error(fmt::format("\"{}\" is not a plain file", path));
  FileChecksum result;
  std::vector<char> piece(kPieceBytes);
  for (;;) {
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return checksum_error("read", path);
    if (count == 0) break;
    result.crc32 = crc32({piece.data(), static_cast<size_t>(count)}, result.crc32);
    result.size += static_cast<uint64_t>(count);
  }
  if (sync == SyncFile::kYes && ::fsync(fd.get()) != 0) return checksum_error("sync", path);
  return result;
}

}  // namespace cohort::files
