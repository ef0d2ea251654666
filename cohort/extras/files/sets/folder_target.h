/// FolderTarget: what is unpacked becomes files of a new folder, which only their owner may read.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/extras/files/sets/unpack.h"

namespace cohort::files {

/// Overwrites nothing: an archive that holds a name twice is an error.
class FolderTarget final : public UnpackTarget {
 public:
  /// Requires: `folder` is there, and nobody else writes to it.
  explicit FolderTarget(std::string folder) : folder_(std::move(folder)) {}
  base::Result<void> add_folder(const std::string& name) override;
  base::Result<void> begin_file(const std::string& name) override;
  base::Result<void> write(std::string_view bytes) override;

 private:
  std::string folder_;
  std::string path_;
  base::Fd fd_;
};

}  // namespace cohort::files
