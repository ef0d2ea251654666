/// Unpacks .gz and .tar.gz, read by libarchive, as if whoever wrote them meant harm.
///
/// A .tar.gz may hold files and folders, and nothing else: no links, no devices. Names are relative and without "..".
/// Contents and the number of entries are bounded, whatever an archive says about itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/files/input/input_file.h"

namespace cohort::files {

struct UnpackLimits {
  /// Of all contents together.
  uint64_t max_bytes = 0;
  int max_entries = 100'000;
};

/// What gets the contents of an archive.
class UnpackTarget {
 public:
  virtual ~UnpackTarget() = default;
  virtual base::Result<void> add_folder(const std::string& name) = 0;
  /// The bytes of write() after it are this file's.
  virtual base::Result<void> begin_file(const std::string& name) = 0;
  virtual base::Result<void> write(std::string_view bytes) = 0;
};

/// `name`: what the one file is called when it is handed to the target.
base::Result<void> unpack_gz(const InputFile& archive, const std::string& name, const UnpackLimits& limits,
                             UnpackTarget& target);
base::Result<void> unpack_tar_gz(const InputFile& archive, const UnpackLimits& limits, UnpackTarget& target);

/// Nothing, or what is wrong with a file's name in an archive: `has ".." in its name`.
std::string unsafe_name_problem(std::string_view name);

}  // namespace cohort::files
