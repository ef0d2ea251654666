#include "cohort/files/checkpoints/file_checksum.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/crc32.h"

namespace cohort::files {
namespace {

// Fits into a core's second-level cache, so the checksum finds the bytes there.
constexpr size_t kPieceBytes = size_t{256} << 10;

base::Error checksum_error(const char* action, const std::string& path) {
  return base::Error(fmt::format("cannot {} \"{}\": {}", action, path, base::errno_text(errno)));
}

}  // namespace

base::Result<FileChecksum> checksum_of_file(const std::string& path, SyncFile sync) {
  const auto file = base::open_regular_file(path, O_RDONLY | O_NOFOLLOW);
  if (!file) return base::Error(fmt::format("cannot open \"{}\": {}", path, file.error().message()));
  const base::Fd& fd = *file;
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
