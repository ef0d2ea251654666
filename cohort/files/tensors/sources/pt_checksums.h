/// The checksums of a .pt file's storages.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::files {

/// Compares all storages with the file's checksums; older formats have none and are only read. The error names the storage.
/// Returns the number of bytes that were compared.
base::Result<uint64_t> check_pt_checksums(const std::string& path);

}  // namespace cohort::files
