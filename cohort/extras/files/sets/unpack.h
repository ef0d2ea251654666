/// Unpacks .gz and .tar.gz with libarchive, safely also if they are malicious.
///
/// A .tar.gz may contain only files and folders, no links and no devices. Names must be relative and without "..". Contents and
/// the number of entries are limited, whatever an archive claims.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/files/input/input_file.h"

namespace cohort::files {

struct UnpackLimits {
  /// The limit of all contents together.
  uint64_t max_bytes = 0;
  int max_entries = 100'000;
};

/// Receives the contents of an archive.
class UnpackTarget {
 public:
  virtual ~UnpackTarget() = default;
  virtual base::Result<void> add_folder(const std::string& name) = 0;
  /// Begins the file to which the following write() calls belong.
  virtual base::Result<void> begin_file(const std::string& name) = 0;
  virtual base::Result<void> write(std::string_view bytes) = 0;
};

/// `name`: the name of the file for the target.
base::Result<void> unpack_gz(const InputFile& archive, const std::string& name, const UnpackLimits& limits,
                             UnpackTarget& target);
base::Result<void> unpack_tar_gz(const InputFile& archive, const UnpackLimits& limits, UnpackTarget& target);

/// Returns the problem of a file's name in an archive, such as `has ".." in its name`; empty for a safe name.
std::string unsafe_name_problem(std::string_view name);

}  // namespace cohort::files
