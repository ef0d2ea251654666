/// FolderTarget: writes unpacked files to a new folder, readable only by their owner.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/extras/files/sets/unpack.h"

namespace cohort::files {

/// Overwrites nothing: an archive with the same name twice is an error.
class FolderTarget final : public UnpackTarget {
 public:
  /// Requires: `folder` exists, and no other program writes to it.
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
