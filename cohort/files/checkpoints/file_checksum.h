/// The checksum (crc32.h) of a complete file.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::files {

struct FileChecksum {
  uint64_t size = 0;
  uint32_t crc32 = 0;
};

enum class SyncFile { kYes, kNo };

/// Reads the file piece by piece. With `sync` it is synced to disk afterwards (fsync). Fails for anything other than a regular
/// file, also for a link.
base::Result<FileChecksum> checksum_of_file(const std::string& path, SyncFile sync = SyncFile::kNo);

}  // namespace cohort::files
